"""Encodes a part of a corpus into token ids, a function of only the part and the settings."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt64

from flaxformer_mt.config.schema import DataConfig
from flaxformer_mt.data.corpus import EMPTY_SIDE, EXAMPLES, Defect, Drops, Place, Source, part_of
from flaxformer_mt.data.corpus.text_files import require_stamp
from flaxformer_mt.data.prepare import filters
from flaxformer_mt.data.vocabulary import BLANK, UNK, Vocabularies

CHUNK = 4096  # records that are encoded at a time
Places = Int64[np.ndarray, " records"]


class Chunk(NamedTuple):
    """Consecutive records of a corpus."""

    split: str
    source: Source
    first_line: int
    records: Sequence[tuple[bytes, ...]]


class Range(NamedTuple):
    """The records of a corpus from `first`, from 0, up to `stop` or to the end."""

    split: str
    source: Source
    first: int = 0
    stop: int | None = None
    places: Mapping[str, Place] = {}

    def records(self) -> Iterator[tuple[bytes, ...]]:
        if self.places and self.stop is not None:
            there = part_of(self.source, self.places).records()
            return itertools.islice(there, self.stop - self.first)
        return itertools.islice(self.source.records(), self.first, self.stop)

    def chunks(self) -> Iterator[Chunk]:
        """The chunks in order. Raises CorpusError."""
        records = self.records()
        line = self.first + 1
        while chunk := list(itertools.islice(records, CHUNK)):
            yield Chunk(self.split, self.source, line, chunk)
            line += len(chunk)


class Encoded:
    """What became of a chunk: which records are kept, their tokens, and why others are not."""

    src: Int32[np.ndarray, " src_tokens"]  # kept sources end to end, EOS after each
    src_lengths: Int32[np.ndarray, " kept"]  # in tokens, EOS included
    tgt: Int32[np.ndarray, " tgt_tokens"]
    tgt_lengths: Int32[np.ndarray, " kept"]
    hashes: UInt64[np.ndarray, " kept"]  # of the pairs' texts, if duplicates are looked for
    bands: UInt64[np.ndarray, " kept bands"]  # of their MinHashes, if near-duplicates are

    def __init__(self, read: int, size: int, first_line: int, label: str) -> None:
        """`size` is that of the records as read, in bytes, `label` the source's."""
        self.read, self.size, self.first_line, self.label = read, size, first_line, label
        self.mask: Bool[np.ndarray, " records"] = np.ones(read, bool)
        self.drops = Drops()
        self.text = b"", b""  # validation: each side's sentences, one a line; others: nothing

    def kept(self) -> Places:
        return np.flatnonzero(self.mask)

    def drop(
        self, records: Places, reason: str, detail: str | Callable[[int], str], file: str = ""
    ) -> None:
        """Drops those of the records, whose places are in order, that are still kept."""
        places = records[self.mask[records]]
        self.mask = self.mask.copy()  # arrays that Ray returns can't be written to
        self.mask[places] = False
        if len(places):
            self.drops.counts[reason] = self.drops.counts.get(reason, 0) + len(places)
        for place in places[:EXAMPLES].tolist():
            said = detail if isinstance(detail, str) else detail(place)
            example = Defect(file or self.label, self.first_line + place, reason, said)
            self.drops.examples.append(example)

    def keep(self, which: Bool[np.ndarray, " kept"]) -> None:
        """Leaves out the tokens of the other pairs."""
        if which.all():
            return
        self.src = self.src[np.repeat(which, self.src_lengths)]
        self.tgt = self.tgt[np.repeat(which, self.tgt_lengths)]
        self.src_lengths, self.tgt_lengths = self.src_lengths[which], self.tgt_lengths[which]
        if len(self.hashes):
            self.hashes = self.hashes[which]
        if len(self.bands):
            self.bands = self.bands[which]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What decides how every chunk of a store is encoded; they can be pickled."""

    vocabularies: Vocabularies
    data: DataConfig
    scripts: tuple[str, str]  # of the two languages, where the filter looks at them


def encode_part(part: Chunk | Range, settings: Settings) -> list[Encoded]:
    """A part of a corpus, read wherever its files can be reached unless it is read already.

    Parts that follow each other give what their whole does; duplicates are the only thing that is
    looked for over parts, by `Encoded.hashes` and `Encoded.bands`. Raises CorpusError.
    """
    chunks = part.chunks() if isinstance(part, Range) else [part]
    encoded = [encode_chunk(chunk, settings) for chunk in chunks]
    if isinstance(part, Range):
        for name, place in part.places.items():
            if place.stamp:  # a later call may use this, which must be of one state of the file
                require_stamp(part.source.files[name], place.stamp)
    return encoded


def encode_chunk(chunk: Chunk, settings: Settings) -> Encoded:
    """Check, filter, encode, and filter by length; a dropped record has one reason.

    Only what the model cannot take is left out of validation, which is sides that are empty or too
    long or words without a type: the other filters clean what is learned from.
    """
    records, source = chunk.records, chunk.source
    encoded = Encoded(len(records), record_bytes(records), chunk.first_line, source.label)
    training = chunk.split == "train"
    defects: dict[tuple[str, str], dict[int, str]] = {}
    for place, columns in enumerate(records):
        if (defect := source.check(columns)) is not None:
            defects.setdefault((defect.reason, defect.file), {})[place] = defect.detail
    for (reason, file), details in defects.items():
        encoded.drop(np.array([*details]), reason, details.__getitem__, file)
    src, tgt = _sides(chunk, encoded)
    if training:
        _filter_text(encoded, src, tgt, settings)
        src, tgt = _sides(chunk, encoded)
    else:
        encoded.text = _lines(src), _lines(tgt)

    hashed = training and settings.data.filter.duplicates
    threshold = settings.data.filter.near_duplicates if training else 0.0
    encoded.src, encoded.src_lengths = settings.vocabularies.src.encode_flat(src)
    encoded.tgt, encoded.tgt_lengths = settings.vocabularies.tgt.encode_flat(tgt)
    encoded.hashes = filters.hashes(zip(src, tgt, strict=True) if hashed else ())
    encoded.bands = filters.band_hashes(zip(src, tgt, strict=True), threshold)
    places = encoded.kept()
    _filter_lengths(chunk, encoded, settings)
    encoded.keep(np.isin(places, encoded.kept()))
    return encoded


def _filter_text(
    encoded: Encoded, src: Sequence[bytes], tgt: Sequence[bytes], settings: Settings
) -> None:
    places = encoded.kept()
    if settings.data.filter.identical:
        same = np.array([a.strip() == b.strip() for a, b in zip(src, tgt, strict=True)], bool)
        encoded.drop(places[same], filters.IDENTICAL, "source and target are identical")
    share = settings.data.filter.script
    sides = "source", "target"
    for side, sentences, script in zip(sides, (src, tgt), settings.scripts, strict=True):
        detail = f"under {share:.0%} of the {side}'s letters are {script}"
        encoded.drop(places[filters.other_script(sentences, script, share)], filters.SCRIPT, detail)


def _filter_lengths(chunk: Chunk, encoded: Encoded, settings: Settings) -> None:
    places = encoded.kept()
    src, tgt = encoded.src_lengths, encoded.tgt_lengths
    shorter, longer = np.minimum(src, tgt), np.maximum(src, tgt)
    ratio = settings.data.filter.max_ratio if chunk.split == "train" else 0
    with np.errstate(over="ignore"):
        uneven = longer > (ratio or np.inf) * shorter

    def tokens(place: int) -> str:
        number = np.searchsorted(places, place)
        return f"{src[number]} source and {tgt[number]} target tokens"

    def unknown(place: int) -> str:
        words = chunk.records[place][1].decode("utf-8").split(" ")
        word = next(word for word in words if UNK in settings.vocabularies.tgt.encode([word])[0])
        return f"{word!r}; you can add it to data.vocabulary.tgt_words"

    # A side may look like text and have no tokens: a model's own rules can remove it.
    encoded.drop(places[shorter == 1], EMPTY_SIDE, tokens)
    encoded.drop(places[longer > settings.data.filter.max_length], filters.TOO_LONG, tokens)
    encoded.drop(places[uneven], filters.LENGTH_RATIO, tokens)
    if settings.data.vocabulary.tgt_types == "words":
        # An unknown label cannot be written: the tree has no form in this vocabulary.
        odd = np.unique(np.repeat(places, tgt)[encoded.tgt == UNK])
        encoded.drop(odd, filters.UNKNOWN_WORD, unknown)
    elif settings.data.vocabulary.tgt_types == "brackets" and len(places):
        _filter_leaves(chunk, encoded, settings, places)


def _filter_leaves(chunk: Chunk, encoded: Encoded, settings: Settings, places: Places) -> None:
    """Drops the trees of `places` whose leaves are not, token by token, their sources' words."""
    signs = ("(", ")")
    pieces = [piece.removeprefix(BLANK) for piece in settings.vocabularies.tgt.pieces()]
    brackets = [number for number, piece in enumerate(pieces) if piece.startswith(signs)]
    is_leaf = ~np.isin(encoded.tgt, brackets)
    ends = np.cumsum(is_leaf)[np.cumsum(encoded.tgt_lengths) - 1]
    leaves = np.split(encoded.tgt[is_leaf], ends[:-1])
    sources = np.split(encoded.src, np.cumsum(encoded.src_lengths)[:-1])
    other = [not np.array_equal(*each) for each in zip(sources, leaves, strict=True)]

    def detail(place: int) -> str:
        words = chunk.records[place][1].decode("utf-8").split(" ")
        unknown = (word for word in words if word.startswith(signs) and word not in pieces)
        if label := next(unknown, ""):
            return f"{label!r}; you can add it to data.vocabulary.tgt_words"
        return "write the target with `trees linearize --leaves words`"

    encoded.drop(places[np.array(other, bool)], filters.OTHER_LEAVES, detail)


def record_bytes(records: Sequence[tuple[bytes, ...]]) -> int:
    return sum(len(column) + 1 for columns in records for column in columns)


def _sides(chunk: Chunk, encoded: Encoded) -> tuple[list[bytes], list[bytes]]:
    kept = [chunk.records[place] for place in encoded.kept()]
    return [src for src, _ in kept], [tgt for _, tgt in kept]


def _lines(sentences: Sequence[bytes]) -> bytes:
    return b"".join(sentence + b"\n" for sentence in sentences)
