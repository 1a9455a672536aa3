"""A part of a corpus from raw records to token ids: a function of the part and settings alone."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt8, UInt64

from flaxformer_mt.config.schema import FilterConfig
from flaxformer_mt.data import corpus as corpora
from flaxformer_mt.data.corpus import Source
from flaxformer_mt.data.prepare import filters
from flaxformer_mt.data.vocabulary import UNK, Vocabulary

CHUNK = 4096
"""Records that are encoded at a time."""
EXAMPLES = 5
"""Dropped pairs of a reason that a chunk shows: as many as an account keeps."""


class Chunk(NamedTuple):
    """Consecutive records of a corpus."""

    split: str
    source: Source
    first_line: int
    records: Sequence[tuple[bytes, ...]]


class Range(NamedTuple):
    """The records of a corpus from `first`, counted from 0, up to `stop` or to the end."""

    split: str
    source: Source
    first: int = 0
    stop: int | None = None

    def chunks(self) -> Iterator[Chunk]:
        """They, read in order; raises CorpusError."""
        records = itertools.islice(self.source.records(), self.first, self.stop)
        line = self.first + 1
        while chunk := list(itertools.islice(records, CHUNK)):
            yield Chunk(self.split, self.source, line, chunk)
            line += len(chunk)


class Fates:
    """Which records of a chunk are kept, and why the others are not."""

    def __init__(self, records: int) -> None:
        self.codes: UInt8[np.ndarray, " records"] = np.zeros(records, np.uint8)
        """For each record the place of its reason in `reasons`; 0 if it is kept."""
        self.reasons = ["kept"]
        self.examples: dict[int, tuple[str, str]] = {}
        """File and detail of the first records dropped for each reason, by their places."""

    def kept(self) -> Int64[np.ndarray, " kept"]:
        return np.flatnonzero(self.codes == 0)

    def drop(self, places: Iterable[int], reason: str, examples: Iterable[tuple[str, str]]) -> None:
        """Drops kept records, whose places are given in order; `examples` go with the places.

        Of each call the first few are shown, so that the first few of all of them are.
        """
        if reason not in self.reasons:
            self.reasons.append(reason)
        places = list(places)
        self.codes[places] = self.reasons.index(reason)
        self.examples.update(zip(places[:EXAMPLES], examples, strict=False))


@dataclasses.dataclass
class Encoded:
    """What became of a chunk."""

    fates: Fates
    src: Int32[np.ndarray, " src_tokens"]
    """Kept sources end to end, EOS after each."""
    src_lengths: Int32[np.ndarray, " kept"]
    """In tokens, EOS included."""
    tgt: Int32[np.ndarray, " tgt_tokens"]
    tgt_lengths: Int32[np.ndarray, " kept"]
    hashes: UInt64[np.ndarray, " kept"]
    """Of the kept pairs' texts; none where duplicates are not looked for."""
    text: tuple[bytes, bytes]
    """Validation: the sentences of each side, one a line; others: nothing."""

    def keep(self, mask: Bool[np.ndarray, " kept"]) -> None:
        """Leaves out the tokens of the other pairs."""
        if mask.all():
            return
        self.src = self.src[np.repeat(mask, self.src_lengths)]
        self.tgt = self.tgt[np.repeat(mask, self.tgt_lengths)]
        self.src_lengths, self.tgt_lengths = self.src_lengths[mask], self.tgt_lengths[mask]
        if len(self.hashes):
            self.hashes = self.hashes[mask]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What decides how every chunk of a store is encoded; they can be pickled."""

    src: Vocabulary
    tgt: Vocabulary
    filter: FilterConfig
    scripts: tuple[str, str] = ("", "")
    """Of the two languages, where the filter looks at them."""
    tgt_words: bool = False
    """Whether the target's types are whole words: then none may be unknown."""


def encode_range(part: Range, settings: Settings) -> Iterator[tuple[Chunk, Encoded]]:
    """A part of a corpus, read and encoded wherever its files can be reached.

    Parts that follow each other give what their whole does; duplicates are the only thing that is
    looked for over parts, by `Encoded.hashes`. Raises CorpusError.
    """
    return ((chunk, encode_chunk(chunk, settings)) for chunk in part.chunks())


def encode_chunk(chunk: Chunk, settings: Settings) -> Encoded:
    """Check, filter, encode, and filter by length; a dropped record has one reason.

    Only what the model cannot take is left out of validation, which is sides that are empty or too
    long or words without a type: the other filters clean what is learned from.
    """
    fates, training = Fates(len(chunk.records)), chunk.split == "train"
    defects: dict[str, dict[int, tuple[str, str]]] = {}
    for place, columns in enumerate(chunk.records):
        if (defect := chunk.source.check(columns)) is not None:
            defects.setdefault(defect.reason, {})[place] = (defect.file, defect.detail)
    for reason, found in defects.items():
        fates.drop(found, reason, found.values())
    src, tgt = _sides(chunk, fates)
    text = (b"", b"") if training else (_lines(src), _lines(tgt))
    if training:
        _filter_text(chunk, fates, src, tgt, settings)
        src, tgt = _sides(chunk, fates)

    hashed = training and settings.filter.duplicates
    encoded = Encoded(
        fates,
        *settings.src.encode_flat(src),
        *settings.tgt.encode_flat(tgt),
        hashes=filters.hashes(zip(src, tgt, strict=True)) if hashed else _NO_HASHES,
        text=text,
    )
    places = fates.kept()
    _filter_lengths(chunk, encoded, settings)
    encoded.keep(fates.codes[places] == 0)
    return encoded


def _filter_text(
    chunk: Chunk, fates: Fates, src: Sequence[bytes], tgt: Sequence[bytes], settings: Settings
) -> None:
    places, file = fates.kept(), chunk.source.label
    dropped = np.zeros(len(places), bool)
    if settings.filter.identical:
        # But for blanks at the ends.
        dropped[:] = [a.strip() == b.strip() for a, b in zip(src, tgt, strict=True)]
    detail = "source and target are one text"
    fates.drop(places[dropped], filters.IDENTICAL, itertools.repeat((file, detail)))
    for side, sentences, script in zip(
        ("source", "target"), (src, tgt), settings.scripts, strict=True
    ):
        found = filters.other_script(sentences, script, settings.filter.script) & ~dropped
        detail = f"under {settings.filter.script:.0%} of the {side}'s letters are {script}"
        fates.drop(places[found], filters.SCRIPT, itertools.repeat((file, detail)))
        dropped |= found


def _filter_lengths(chunk: Chunk, encoded: Encoded, settings: Settings) -> None:
    places, label = encoded.fates.kept(), chunk.source.label
    src, tgt = encoded.src_lengths, encoded.tgt_lengths
    shorter, longer = np.minimum(src, tgt), np.maximum(src, tgt)
    # A side may look like text and have no tokens: a model's own rules can remove it.
    void = shorter == 1
    long = (longer > settings.filter.max_length) & ~void
    uneven = np.zeros(len(places), bool)
    if chunk.split == "train" and settings.filter.max_ratio:
        with np.errstate(over="ignore"):
            uneven = (longer > settings.filter.max_ratio * shorter) & ~void & ~long
    for reason, mask in (
        (corpora.EMPTY_SIDE, void),
        (filters.TOO_LONG, long),
        (filters.LENGTH_RATIO, uneven),
    ):
        details = (
            (label, f"{src[number]} source and {tgt[number]} target tokens")
            for number in np.flatnonzero(mask)
        )
        encoded.fates.drop(places[mask], reason, details)
    if settings.tgt_words:
        # A label that is unknown is no label: the tree has no form in this vocabulary.
        unknown = np.zeros(len(places), bool)
        unknown[np.repeat(np.arange(len(places)), tgt)[encoded.tgt == UNK]] = True
        unknown &= ~(void | long | uneven)
        targets = (chunk.records[place][1] for place in places[unknown])
        details = (
            (label, f"data.vocabulary.tgt_words may name it: {_unknown(target, settings.tgt)!r}")
            for target in targets
        )
        encoded.fates.drop(places[unknown], filters.UNKNOWN_WORD, details)


def _unknown(target: bytes, vocabulary: Vocabulary) -> str:
    words = target.decode("utf-8").split(" ")
    return next(word for word in words if UNK in vocabulary.encode([word])[0])


_NO_HASHES = np.zeros(0, np.uint64)


def _sides(chunk: Chunk, fates: Fates) -> tuple[list[bytes], list[bytes]]:
    """The sentences of the records that are kept so far."""
    kept = [chunk.records[place] for place in fates.kept()]
    return [src for src, _ in kept], [tgt for _, tgt in kept]


def _lines(sentences: Sequence[bytes]) -> bytes:
    return b"".join(sentence + b"\n" for sentence in sentences)
