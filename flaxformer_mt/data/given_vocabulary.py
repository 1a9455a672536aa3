"""SentencePiece models that were trained elsewhere, as vocabularies of this project.

SentencePiece numbers types by their order in the model's file, and lets everybody choose names and
ids of the marks: its own default has no padding, T5's models no begin mark. Here the marks are the
first types (`vocabulary.PAD` and the others), under one name each. How text is cut depends on the
pieces' scores, not on their order.

OPUS-MT's models have a SentencePiece model for each language, and one table, Marian's `vocab.yml`,
that gives the pieces of both their ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import yaml
from google.protobuf.message import DecodeError

from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.sentencepiece_training import ModelProto, VocabularyError
from flaxformer_mt.data.type_table import MARKS as NAMES_OF_MARKS, TypeTable
from flaxformer_mt.data.vocabulary import EOS, MARKS, UNK, Vocabularies, Vocabulary

_Piece = ModelProto.SentencePiece
_NAMES = dict(zip(MARKS, NAMES_OF_MARKS, strict=True))
_UNKNOWN_SURFACE = " \u2047 "  # SentencePiece's own, which unknown text decodes to
_FEWEST_KNOWN = 0.5  # of a model's pieces are in the table of its types


def given_vocabularies(config: VocabularyConfig, folder: str) -> Vocabularies | None:
    """The vocabularies of the models that the settings name, relative to `folder`; None if they
    name none. Raises VocabularyError, CorpusError."""
    names = ("model",) if config.model else ("src_model", "tgt_model")
    if not getattr(config, names[0]):
        return None
    sides = [_read(getattr(config, name), folder, f"data.vocabulary.{name}") for name in names]
    if config.joint_types:
        sides = _with_joint_types(sides, config, folder)
    return Vocabularies(sides[0], sides[-1])


def _contents(setting: str, folder: str, key: str) -> tuple[paths.AnyPath, bytes]:
    path = paths.require_file(setting, folder, key)
    with paths.reaching(path):
        return path, path.read_bytes()


def _with_joint_types(
    sides: list[Vocabulary], config: VocabularyConfig, folder: str
) -> list[Vocabulary]:
    """The models with the types of one table. Raises VocabularyError, CorpusError."""
    key = "data.vocabulary.joint_types"
    path, content = _contents(config.joint_types, folder, key)
    try:
        table = joint_types(content)
    except VocabularyError as error:
        raise VocabularyError(f"{key}: {path}: {error}") from error
    for side, name in zip(sides, (config.src_model, config.tgt_model), strict=True):
        pieces = [
            piece for piece, kind in zip(side.pieces(), side.types(), strict=True) if kind.plain
        ]
        known = sum(piece in table.ids for piece in pieces)
        if known < _FEWEST_KNOWN * len(pieces):
            raise VocabularyError(
                f"{key}: {path}: has {known:,} of the {len(pieces):,} pieces of {name}: it is "
                "another model's"
            )
    return [dataclasses.replace(side, table=table) for side in sides]


def joint_types(content: bytes) -> TypeTable:
    """The types of Marian's `vocab.yml`, a mapping from pieces to ids, in the order of the ids but
    with the marks first. Raises VocabularyError."""
    ids: dict[str, int] = {}
    pieces_of = dict[int, str]()
    for piece, written in _entries(content):
        if not written.isascii() or not written.isdigit():
            raise VocabularyError(f"has {piece!r}: {written!r}, which is not a piece and its id")
        number = int(written)
        if piece in ids:
            raise VocabularyError(f"has the piece {piece!r} twice")
        if number in pieces_of:
            raise VocabularyError(f"has {pieces_of[number]!r} and {piece!r} with the id {number}")
        ids[piece], pieces_of[number] = number, piece
    missing = [NAMES_OF_MARKS[mark] for mark in (EOS, UNK) if NAMES_OF_MARKS[mark] not in ids]
    if missing:
        raise VocabularyError(f"has no {' and no '.join(missing)}, Marian's marks")
    others = [piece for piece in sorted(ids, key=ids.__getitem__) if piece not in NAMES_OF_MARKS]
    return TypeTable((*NAMES_OF_MARKS, *others))


def _entries(content: bytes) -> Iterator[tuple[str, str]]:
    """The keys and values of a YAML mapping of scalars, as they are written: a piece may be `no` or
    `5`. Raises VocabularyError. (The loader itself would follow any depth of nesting.)"""
    try:
        events = yaml.parse(content, yaml.CSafeLoader)
        kinds = (yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.MappingStartEvent)
        if not all(isinstance(next(events, None), kind) for kind in kinds):
            raise VocabularyError("is not a mapping from pieces to ids")
        for key in events:
            if isinstance(key, yaml.MappingEndEvent):
                return
            value = next(events)
            if not (isinstance(key, yaml.ScalarEvent) and isinstance(value, yaml.ScalarEvent)):
                raise VocabularyError("is not a mapping from pieces to ids")
            yield key.value, value.value
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise VocabularyError(f"is not YAML: {error}") from error


def _read(setting: str, folder: str, key: str) -> Vocabulary:
    path, content = _contents(setting, folder, key)
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
