"""Encodes a part of a corpus into token ids, a function of only the part and the settings."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt64

from flaxformer_mt.config.schema import DataConfig, FilterConfig
from flaxformer_mt.data.corpus import (
    EMPTY_SIDE,
    EXAMPLES,
    Defect,
    Drops,
    LinePlace,
    PairSource,
)
from flaxformer_mt.data.corpus.text_files import require_stamp
from flaxformer_mt.data.prepare import filters
from flaxformer_mt.data.vocabulary import BLANK, UNK, Vocabularies, Vocabulary

CHUNK = 4096  # records that are encoded at a time
Side = Literal["src", "tgt"]
Places = Int64[np.ndarray, " records"]


class Chunk(NamedTuple):
    """Consecutive records of a corpus."""

    split: str
    source: PairSource
    first_line: int
    records: Sequence[tuple[bytes, ...]]


class Range(NamedTuple):
    """The records of a corpus from `first`, from 0, up to `stop` or to the end."""

    split: str
    source: PairSource
    first: int = 0
    stop: int | None = None
    places: Mapping[str, LinePlace] = {}

    def records(self) -> Iterator[tuple[bytes, ...]]:
        if self.places and self.stop is not None:
            from_first = self.source.starting_at(self.places).records()
            return itertools.islice(from_first, self.stop - self.first)
        return itertools.islice(self.source.records(), self.first, self.stop)

    def chunks(self) -> Iterator[Chunk]:
        """The chunks in order. Raises CorpusError."""
        records = self.records()
        line = self.first + 1
        while chunk := list(itertools.islice(records, CHUNK)):
            yield Chunk(self.split, self.source, line, chunk)
            line += len(chunk)


class UnknownText(NamedTuple):
    """Text that became an unknown token, and its place: the record, from 0 within its chunk."""

    record: int
    side: Side
    file: str
    text: str


class Encoded:
    """A chunk after encoding: the tokens of the records that are kept, and why others are not."""

    src: Int32[np.ndarray, " src_tokens"]  # kept sources end to end, EOS after each
    src_lengths: Int32[np.ndarray, " kept"]  # in tokens, EOS included
    tgt: Int32[np.ndarray, " tgt_tokens"]
    tgt_lengths: Int32[np.ndarray, " kept"]
    hashes: UInt64[np.ndarray, " kept"]  # of the pairs' texts, if duplicates are looked for
    bands: UInt64[np.ndarray, " kept bands"]  # of their MinHashes, if near-duplicates are

    def __init__(self, read: int, size: int, first_line: int, label: str) -> None:
        """Of `read` records of a `size` in bytes; `label` is the source's."""
        self.read = read
        self.size = size
        self.first_line = first_line
        self.label = label
        self.mask: Bool[np.ndarray, " records"] = np.ones(read, bool)
        self.drops = Drops()
        self.text = b"", b""  # validation: each side's sentences, one a line; others: nothing
        self.unknowns = list[UnknownText]()  # examples

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
            text = detail if isinstance(detail, str) else detail(place)
            example = Defect(file or self.label, self.first_line + place, reason, text)
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
class EncodingSettings:
    """The settings by which every chunk of a store is encoded. They can be pickled."""

    vocabularies: Vocabularies
    data: DataConfig
    scripts: tuple[str, str]  # of the two languages, where the filter looks at them


def encode_part(part: Chunk | Range, settings: EncodingSettings) -> list[Encoded]:
    """Encodes a part of a corpus; a `Range` is read first, by any machine that has its files.

    Consecutive parts give the same as all of them at once. Duplicates are left to the caller, by
    `Encoded.hashes` and `Encoded.bands`, since they may be in several parts. Raises CorpusError.
    """
    chunks = part.chunks() if isinstance(part, Range) else [part]
    encoded = [encode_chunk(chunk, settings) for chunk in chunks]
    if isinstance(part, Range):
        for name, place in part.places.items():
            if place.stamp:  # a later call may use the result: the file must not have changed
                require_stamp(part.source.files[name], place.stamp)
    return encoded


def sift(chunk: Chunk, config: FilterConfig, scripts: tuple[str, str]) -> Encoded:
    """Checks a chunk's records, and filters training text without the corpus's tag.

    This needs no vocabulary.
    """
    records, source = chunk.records, chunk.source
    encoded = Encoded(len(records), record_bytes(records), chunk.first_line, source.label)
    defects: dict[tuple[str, str], dict[int, str]] = {}
    for place, columns in enumerate(records):
        defect = source.check(columns)
        if defect is not None:
            defects.setdefault((defect.reason, defect.file), {})[place] = defect.detail
    for (reason, file), details in defects.items():
        encoded.drop(np.array([*details]), reason, details.__getitem__, file)
    if chunk.split == "train":
        _filter_text(encoded, *sides(chunk, encoded), config, scripts)
    return encoded


def encode_chunk(chunk: Chunk, settings: EncodingSettings) -> Encoded:
    """Check, filter, tag, encode, and filter by length; a dropped record has one reason.

    Validation leaves out only pairs that the model can't take: sides that are empty or too long,
    or words without a type. The other filters clean training text.
    """
    config = settings.data.filter
    encoded = sift(chunk, config, settings.scripts)
    src, tgt = sides(chunk, encoded)
    if chunk.split == "train":
        encoded.hashes = filters.hashes(zip(src, tgt, strict=True) if config.duplicates else ())
        encoded.bands = filters.band_hashes(zip(src, tgt, strict=True), config.near_duplicates)
    else:
        encoded.hashes, encoded.bands = filters.hashes(()), filters.band_hashes((), 0.0)

    # From here on with the tag, which the filters above must not take for text.
    src = [*map(chunk.source.tagged, src)]
    if chunk.split != "train":
        encoded.text = _lines(src), _lines(tgt)
    encoded.src, encoded.src_lengths = settings.vocabularies.src.encode_flat(src)
    encoded.tgt, encoded.tgt_lengths = settings.vocabularies.tgt.encode_flat(tgt)
    places = encoded.kept()
    _filter_tokens(chunk, encoded, settings)
    encoded.keep(np.isin(places, encoded.kept()))
    encoded.unknowns = [
        *_unknown_texts(chunk, encoded, "src", settings.vocabularies.src),
        *_unknown_texts(chunk, encoded, "tgt", settings.vocabularies.tgt),
    ]
    return encoded


def _filter_text(
    encoded: Encoded,
    src: Sequence[bytes],
    tgt: Sequence[bytes],
    config: FilterConfig,
    scripts: tuple[str, str],
) -> None:
    places = encoded.kept()
    if config.identical:
        identical = [a.strip() == b.strip() for a, b in zip(src, tgt, strict=True)]
        encoded.drop(
            places[np.array(identical, bool)],
            filters.IDENTICAL,
            "source and target are identical",
        )
    names = "source", "target"
    for name, sentences, script in zip(names, (src, tgt), scripts, strict=True):
        detail = f"under {config.script:.0%} of the {name}'s letters are {script}"
        in_other_script = filters.other_script(sentences, script, config.script)
        encoded.drop(places[in_other_script], filters.SCRIPT, detail)


def _filter_tokens(chunk: Chunk, encoded: Encoded, settings: EncodingSettings) -> None:
    """Drops pairs by their tokens, and leaves the tokens in the arrays."""
    places = encoded.kept()  # of the pairs in the arrays
    tag = _tag_length(chunk.source.tag, settings.vocabularies.src)
    _filter_lengths(chunk, encoded, settings, places, tag)
    tgt_types = settings.data.vocabulary.tgt_types
    if tgt_types == "words":
        _filter_unknown_words(chunk, encoded, settings, places)
    elif tgt_types == "brackets" and len(places):
        _filter_leaves(chunk, encoded, settings, places, tag)


def _filter_lengths(
    chunk: Chunk, encoded: Encoded, settings: EncodingSettings, places: Places, tag: int
) -> None:
    """Drops empty, long and uneven pairs of `places`; a `tag` of so many tokens isn't text."""
    src, tgt = encoded.src_lengths, encoded.tgt_lengths
    # The tag counts only where the model must find room for it.
    shorter, longer = np.minimum(src - tag, tgt), np.maximum(src - tag, tgt)
    ratio = settings.data.filter.max_ratio if chunk.split == "train" else 0
    with np.errstate(over="ignore"):
        uneven = longer > (ratio or np.inf) * shorter
    too_long = np.maximum(src, tgt) > settings.data.filter.max_length

    def detail(place: int) -> str:
        number = np.searchsorted(places, place)
        return f"{src[number]} source and {tgt[number]} target tokens"

    # A side may look like text and have no tokens: a model's own rules can remove it.
    encoded.drop(places[shorter == 1], EMPTY_SIDE, detail)
    encoded.drop(places[too_long], filters.TOO_LONG, detail)
    encoded.drop(places[uneven], filters.LENGTH_RATIO, detail)


def _filter_unknown_words(
    chunk: Chunk, encoded: Encoded, settings: EncodingSettings, places: Places
) -> None:
    """Drops targets of `places` with unknown labels: the vocabulary can't write their trees."""
    vocabulary = settings.vocabularies.tgt

    def detail(place: int) -> str:
        words = chunk.records[place][1].decode("utf-8").split(" ")
        word = next(word for word in words if UNK in vocabulary.encode([word])[0])
        return f"{word!r}; you can add it to data.vocabulary.tgt_words"

    place_of_token = np.repeat(places, encoded.tgt_lengths)
    with_unknown = np.unique(place_of_token[encoded.tgt == UNK])
    encoded.drop(with_unknown, filters.UNKNOWN_WORD, detail)


def _tag_length(tag: str, vocabulary: Vocabulary) -> int:
    """Tokens that a tag puts before a source, among them a blank."""
    return len(vocabulary.encode([tag])[0]) if tag else 0


def _unknown_texts(
    chunk: Chunk, encoded: Encoded, side: Side, vocabulary: Vocabulary
) -> list[UnknownText]:
    """The first text of each kept sentence that became an unknown token.

    Of every sentence: which examples are shown must not depend on where chunks end.
    """
    if side == "src":
        ids, lengths = encoded.src, encoded.src_lengths
    else:
        ids, lengths = encoded.tgt, encoded.tgt_lengths
    unknown = np.flatnonzero(ids == UNK)
    rows = np.unique(np.searchsorted(np.cumsum(lengths), unknown, side="right"))
    file = chunk.source.file_of(side)
    unknown_texts = list[UnknownText]()
    for place in encoded.kept()[rows].tolist():
        src, tgt = chunk.records[place]
        sentence = chunk.source.tagged(src) if side == "src" else tgt
        tokens, spans = vocabulary.encode_with_spans(sentence.decode())
        begin, end = spans[tokens.index(UNK)]
        text = sentence[begin:end].decode(errors="replace").strip()
        unknown_texts.append(UnknownText(place, side, file, text))
    return unknown_texts


def _filter_leaves(
    chunk: Chunk, encoded: Encoded, settings: EncodingSettings, places: Places, tag: int
) -> None:
    """Drops the trees of `places` whose leaves are not, token by token, their sources' words."""
    signs = ("(", ")")
    pieces = [piece.removeprefix(BLANK) for piece in settings.vocabularies.tgt.pieces()]
    brackets = [number for number, piece in enumerate(pieces) if piece.startswith(signs)]
    is_leaf = ~np.isin(encoded.tgt, brackets)
    # How many leaves there are up to the end of each target.
    leaf_ends = np.cumsum(is_leaf)[np.cumsum(encoded.tgt_lengths) - 1]
    leaves = np.split(encoded.tgt[is_leaf], leaf_ends[:-1])
    sources = np.split(encoded.src, np.cumsum(encoded.src_lengths)[:-1])
    differ = [
        not np.array_equal(source[tag:], leaf) for source, leaf in zip(sources, leaves, strict=True)
    ]

    def detail(place: int) -> str:
        words = chunk.records[place][1].decode("utf-8").split(" ")
        unknown = (word for word in words if word.startswith(signs) and word not in pieces)
        label = next(unknown, "")
        if label:
            return f"{label!r}; you can add it to data.vocabulary.tgt_words"
        return "write the target with `trees linearize --leaves words`"

    encoded.drop(places[np.array(differ, bool)], filters.OTHER_LEAVES, detail)


def record_bytes(records: Sequence[tuple[bytes, ...]]) -> int:
    return sum(len(column) + 1 for columns in records for column in columns)


def sides(chunk: Chunk, encoded: Encoded) -> tuple[list[bytes], list[bytes]]:
    """The kept sources, without the tag, and targets."""
    pairs = [chunk.records[place] for place in encoded.kept()]
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]


def _lines(sentences: Sequence[bytes]) -> bytes:
    return b"".join(sentence + b"\n" for sentence in sentences)
