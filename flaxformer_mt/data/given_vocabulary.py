"""SentencePiece models that were trained elsewhere, as vocabularies of this project.

SentencePiece numbers types by their order in the model's file, and lets everybody choose names and
ids of the marks: its own default has no padding, T5's models no begin mark. Here the marks are the
first types (`vocabulary.PAD` and the others), under one name each. How text is cut depends on the
pieces' scores, not on their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError

from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.sentencepiece_training import ModelProto, VocabularyError
from flaxformer_mt.data.vocabulary import MARKS, Vocabularies, Vocabulary

_Piece = ModelProto.SentencePiece
_NAMES = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>"}
_UNKNOWN_SURFACE = " \u2047 "  # SentencePiece's own, which unknown text decodes to


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
        vocabulary = Vocabulary(with_marks_first(content))
        vocabulary.check()
    except VocabularyError as error:
        raise VocabularyError(f"{key}: {path}: {error}") from error
    return vocabulary


def with_marks_first(model: bytes) -> bytes:
    """A SentencePiece model's file with the marks as its first types, and the others after them in
    their order. Padding and the begin mark are added if it lacks them. Raises VocabularyError."""
    proto = ModelProto()
    try:
        proto.ParseFromString(model)
    except DecodeError as error:
        raise VocabularyError("is not a SentencePiece model") from error
    for complaint in _complaints(proto):
        raise VocabularyError(complaint)

    spec = proto.trainer_spec
    theirs = {"pad": spec.pad_piece, "bos": spec.bos_piece, "eos": spec.eos_piece}
    theirs["unk"] = next(piece.piece for piece in proto.pieces if piece.type == _Piece.UNKNOWN)
    known = {piece.piece: piece for piece in proto.pieces}
    marks = [_mark(name, known.get(theirs[name])) for name in MARKS]
    others = [piece for piece in proto.pieces if piece.piece not in theirs.values()]
    for piece in others:
        if piece.piece in _NAMES.values():
            raise VocabularyError(f"has {piece.piece} as a piece of text, which is a mark here")

    del proto.pieces[:]
    proto.pieces.extend([*marks, *others])
    for name, number in MARKS.items():
        setattr(spec, f"{name}_id", number)
        setattr(spec, f"{name}_piece", _NAMES[name])
    spec.unk_surface = _UNKNOWN_SURFACE
    spec.vocab_size = len(proto.pieces)
    # As everywhere here, a run of blanks counts as one.
    proto.normalizer_spec.remove_extra_whitespaces = True
    content: bytes = proto.SerializeToString()
    return content


def _complaints(proto: Any) -> Iterator[str]:
    """Why a model can't be used, if it can't."""
    kinds = [piece.type for piece in proto.pieces]
    if not kinds:
        yield "is not a SentencePiece model"
        return
    if kinds.count(_Piece.UNKNOWN) != 1:
        yield "has no single piece for unknown text"
    if _Piece.UNUSED in kinds:
        yield (
            "has pieces that are switched off (SetVocabulary): give the model as it was before that"
        )
    spec = proto.trainer_spec
    if spec.treat_whitespace_as_suffix or not proto.normalizer_spec.escape_whitespaces:
        yield "has no sign of a blank where words begin, which is needed here"
    if spec.eos_piece not in {piece.piece for piece in proto.pieces}:
        yield (
            f"has no end mark, {spec.eos_piece}, which says where an output ends. SentencePiece "
            "makes one unless it is told not to: spm_train --input=TEXT --model_prefix=NAME "
            f"--vocab_size={len(kinds)}"
        )


def _mark(name: str, found: Any | None) -> Any:
    """The piece of a mark, new if the model has none."""
    kind = _Piece.UNKNOWN if name == "unk" else _Piece.CONTROL
    if found is None:
        return _Piece(piece=_NAMES[name], score=0.0, type=kind)
    if found.type not in (_Piece.CONTROL, _Piece.USER_DEFINED, kind):
        raise VocabularyError(f"has its {name} mark, {found.piece}, as a piece of text")
    return _Piece(piece=_NAMES[name], score=found.score, type=kind)
