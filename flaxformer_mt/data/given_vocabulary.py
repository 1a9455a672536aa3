"""SentencePiece models that were trained elsewhere, as vocabularies of this project.

SentencePiece numbers types by their order in the model's file, and lets everybody choose where the
marks are: its own default has no padding, T5's models no begin mark. Here the marks are the first
types (`vocabulary.PAD` and the others). The order of types says nothing about how text is cut,
which pieces' scores decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.sentencepiece_training import ModelProto, VocabularyError
from flaxformer_mt.data.vocabulary import MARKS, Vocabularies, Vocabulary

_Piece = ModelProto.SentencePiece
# Kinds of pieces that a mark may have been: others stand for text.
_NOT_TEXT = (_Piece.CONTROL, _Piece.USER_DEFINED, _Piece.UNUSED)


def given_vocabularies(config: VocabularyConfig, folder: str) -> Vocabularies | None:
    """The vocabularies of the models that the settings name, relative to `folder`; None if they
    name none. Raises VocabularyError, CorpusError."""
    names = ("model",) if config.model else ("src_model", "tgt_model")
    if not getattr(config, names[0]):
        return None
    sides = [_read(getattr(config, name), folder, f"data.vocabulary.{name}") for name in names]
    return Vocabularies(sides[0], sides[-1])


def _read(setting: str, folder: str, key: str) -> Vocabulary:
    path = paths.require_file(setting, folder, key)
    with paths.reaching(path):
        content = path.read_bytes()
    try:
        return Vocabulary(with_marks_first(content))
    except VocabularyError as error:
        raise VocabularyError(f"{key}: {path}: {error}") from error


def with_marks_first(model: bytes) -> bytes:
    """A SentencePiece model's file with the marks as its first types, and the others after them in
    their order. Padding and the begin mark are added if it lacks them. Raises VocabularyError."""
    proto = ModelProto()
    try:
        proto.ParseFromString(model)
    except DecodeError as error:
        raise VocabularyError("is not a SentencePiece model") from error
    if not proto.pieces:
        raise VocabularyError("is not a SentencePiece model")

    spec = proto.trainer_spec
    unknown = [piece.piece for piece in proto.pieces if piece.type == _Piece.UNKNOWN]
    if not unknown:
        raise VocabularyError("has no piece for unknown text")
    names = {"pad": spec.pad_piece, "bos": spec.bos_piece, "eos": spec.eos_piece, "unk": unknown[0]}
    known = {piece.piece: piece for piece in proto.pieces}
    if names["eos"] not in known:
        raise VocabularyError(
            f"has no end mark, {names['eos']}, which says where an output ends. SentencePiece "
            "makes one unless it is told not to: spm_train --input=TEXT --model_prefix=NAME "
            f"--vocab_size={len(proto.pieces)}"
        )
    marks = [_mark(name, names[name], known) for name in MARKS]

    others = [piece for piece in proto.pieces if piece.piece not in names.values()]
    del proto.pieces[:]
    proto.pieces.extend([*marks, *others])
    for name, number in MARKS.items():
        setattr(spec, f"{name}_id", number)
    spec.unk_piece = names["unk"]
    spec.vocab_size = len(proto.pieces)
    content: bytes = proto.SerializeToString()
    return content


def _mark(name: str, piece: str, known: Mapping[str, Any]) -> Any:
    """The piece of a mark, new if the model lacks it."""
    kind = _Piece.UNKNOWN if name == "unk" else _Piece.CONTROL
    if piece not in known:
        return _Piece(piece=piece, score=0.0, type=kind)
    found = known[piece]
    if found.type not in (*_NOT_TEXT, kind):
        raise VocabularyError(f"the mark {piece} is a piece of text in it")
    return _Piece(piece=piece, score=found.score, type=kind)
