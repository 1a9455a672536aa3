"""Encodes a part of a corpus into token ids, a function of only the part and the settings."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64, UInt64

from flaxformer_mt.config.schema import DataConfig, FilterConfig
from flaxformer_mt.data.corpus import (
    EMPTY_SIDE,
    EXAMPLES,
    CorpusRecord,
    Defect,
    Drops,
    LinePlace,
    NoText,
    PairSource,
    checked,
    weight_of,
)
from flaxformer_mt.data.corpus.pairs import HEADER
from flaxformer_mt.data.corpus.text_files import require_stamp
from flaxformer_mt.data.prepare import filters
from flaxformer_mt.data.prepare.evaluation_text import EvaluationText
from flaxformer_mt.data.vocabulary import BLANK, UNK, Vocabularies, Vocabulary

if TYPE_CHECKING:
    from flaxformer_mt.data.prepare.language_id import OtherLanguage

CHUNK = 4096  # records that are encoded at a time
Side = Literal["src", "tgt"]
Places = Int64[np.ndarray, " records"]


class Chunk(NamedTuple):
    """Consecutive records of a corpus."""

    split: str
    source: PairSource
    first_line: int
    records: Sequence[CorpusRecord]


class Range(NamedTuple):
    """The records of a corpus from `first`, from 0, up to `stop` or to the end."""

    split: str
    source: PairSource
    first: int = 0
    stop: int | None = None
    places: Mapping[str, LinePlace] = {}

    def records(self) -> Iterator[CorpusRecord]:
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


@dataclasses.dataclass(frozen=True)
class Sifted:
    """Which records of a chunk are kept so far, and why the others aren't."""

    read: int  # records, but for a header
    size: int  # in bytes, line ends included
    first_line: int
    label: str  # the source's
    mask: Bool[np.ndarray, " records"]
    drops: Drops
    # Pairs that are kept though evaluation text has their source; the reason names the corpus.
    overlap: Drops = dataclasses.field(default_factory=Drops)

    def kept(self) -> Places:
        return np.flatnonzero(self.mask)

    def without(
        self, records: Places, reason: str, detail: str | Callable[[int], str], file: str = ""
    ) -> "Sifted":
        """Drops those of the records, whose places are in order, that are still kept."""
        places = records[self.mask[records]]
        if not len(places):
            return self
        mask = self.mask.copy()
        mask[places] = False
        drops = self._with(self.drops, places, reason, detail, file)
        return dataclasses.replace(self, mask=mask, drops=drops)

    def overlapping(self, places: Places, reason: str, detail: str) -> "Sifted":
        """Counts records that stay although a set to evaluate on has their source."""
        if not len(places):
            return self
        overlap = self._with(self.overlap, places, reason, detail)
        return dataclasses.replace(self, overlap=overlap)

    def _with(
        self,
        drops: Drops,
        places: Places,
        reason: str,
        detail: str | Callable[[int], str],
        file: str = "",
    ) -> Drops:
        """The counts and examples with those of the records at these places."""
        examples = [
            Defect(
                file or self.label,
                self.first_line + place,
                reason,
                detail if isinstance(detail, str) else detail(place),
            )
            for place in places[:EXAMPLES].tolist()
        ]
        count = drops.counts.get(reason, 0) + len(places)
        return Drops({**drops.counts, reason: count}, [*drops.examples, *examples])


@dataclasses.dataclass(frozen=True)
class KeptTokens:
    """The tokens of a chunk's kept pairs, and what tells whether such a pair came before."""

    src: Int32[np.ndarray, " src_tokens"]  # kept sources end to end, EOS after each
    src_lengths: Int32[np.ndarray, " kept"]  # in tokens, EOS included
    tgt: Int32[np.ndarray, " tgt_tokens"]
    tgt_lengths: Int32[np.ndarray, " kept"]
    hashes: UInt64[np.ndarray, " kept"]  # of the pairs' texts; empty unless duplicates are sought
    bands: UInt64[np.ndarray, " kept bands"]  # of their MinHashes; empty unless near ones are
    weights: Float32[np.ndarray, " kept"]  # empty unless training pairs have weights

    def only(self, which: Bool[np.ndarray, " kept"]) -> "KeptTokens":
        """The tokens of these pairs."""
        if which.all():
            return self
        return KeptTokens(
            self.src[np.repeat(which, self.src_lengths)],
            self.src_lengths[which],
            self.tgt[np.repeat(which, self.tgt_lengths)],
            self.tgt_lengths[which],
            self.hashes[which] if len(self.hashes) else self.hashes,
            self.bands[which] if len(self.bands) else self.bands,
            self.weights[which] if len(self.weights) else self.weights,
        )


@dataclasses.dataclass(frozen=True)
class Encoded:
    """A chunk after encoding: the tokens of the records that are kept, and why others are not."""

    sifted: Sifted
    tokens: KeptTokens  # of the records that `sifted` keeps
    text: tuple[bytes, bytes]  # validation: each side's sentences, one a line; others: nothing
    unknowns: Sequence[UnknownText]  # examples

    def without(self, which: Bool[np.ndarray, " kept"], reason: str, detail: str) -> "Encoded":
        """Drops these of the kept records, with their tokens."""
        sifted = self.sifted.without(self.sifted.kept()[which], reason, detail)
        return dataclasses.replace(self, sifted=sifted, tokens=self.tokens.only(~which))


@dataclasses.dataclass(frozen=True)
class EncodingSettings:
    """The settings by which every chunk of a store is encoded. They can be pickled."""

    vocabularies: Vocabularies
    data: DataConfig
    evaluation: EvaluationText | None = None  # by which training text is searched


def encode_part(part: Chunk | Range, settings: EncodingSettings) -> list[Encoded]:
    """Encodes a part of a corpus; a `Range` is read first, by any machine that has its files.

    Consecutive parts give the same as all of them at once. Duplicates may be in several parts, so
    the caller finds them by the hashes of `KeptTokens`. Raises CorpusError.
    """
    chunks = part.chunks() if isinstance(part, Range) else [part]
    encoded = [encode_chunk(chunk, settings) for chunk in chunks]
    if isinstance(part, Range):
        for name, place in part.places.items():
            if place.stamp:  # a later call may use the result: the file must not have changed
                require_stamp(part.source.files[name], place.stamp)
    return encoded


def sift(chunk: Chunk, config: FilterConfig, evaluation: EvaluationText | None = None) -> Sifted:
    """Checks a chunk's records, and filters training text without the corpus's tag.

    Training text is searched for sources of `evaluation`. This needs no vocabulary.
    """
    records, source = chunk.records, chunk.source
    mask = np.ones(len(records), bool)
    size = record_bytes(records)
    sifted = Sifted(len(records), size, chunk.first_line, source.label, mask, Drops())
    defects: dict[tuple[str, str], dict[int, str]] = {}
    for place, record in enumerate(records):
        defect = source.check(record)
        if defect is not None:
            defects.setdefault((defect.reason, defect.file), {})[place] = defect.detail
    for (reason, file), details in defects.items():
        if reason == HEADER:
            sifted.mask[[*details]] = False
            sifted = dataclasses.replace(sifted, read=sifted.read - len(details))
            continue
        sifted = sifted.without(np.array([*details]), reason, details.__getitem__, file)
    if chunk.split == "train":
        sifted = _filter_text(sifted, *sides(chunk, sifted), config, source.languages)
    if chunk.split == "train" and evaluation is not None:
        sifted = _search(sifted, sides(chunk, sifted)[0], evaluation, drops=config.overlap)
    return sifted


def _search(
    sifted: Sifted, sources: Sequence[bytes], evaluation: EvaluationText, *, drops: bool
) -> Sifted:
    """Drops, or only counts, kept records whose source a set to evaluate on has."""
    places, owners = sifted.kept(), evaluation.owners_of(sources)
    for number, key in enumerate(evaluation.keys):
        found = places[owners == number]
        if drops:
            sifted = sifted.without(found, f"in {key}", f"a source of {key}")
        else:
            sifted = sifted.overlapping(found, f"in {key}", f"a source of {key}")
    return sifted


def encode_chunk(chunk: Chunk, settings: EncodingSettings) -> Encoded:
    """Check, filter, tag, encode, and filter by length; a dropped record has one reason.

    Validation leaves out only pairs that the model can't take: sides that are empty or too long,
    or words without a type. The other filters clean training text.
    """
    config, vocabularies = settings.data.filter, settings.vocabularies
    sifted = sift(chunk, config, settings.evaluation)
    src, tgt = sides(chunk, sifted)
    if chunk.split == "train":
        hashes = filters.hashes(zip(src, tgt, strict=True) if config.duplicates else ())
        bands = filters.band_hashes(zip(src, tgt, strict=True), config.near_duplicates)
    else:
        hashes, bands = filters.hashes(()), filters.band_hashes((), 0.0)

    # From here on with the tag, which the filters above must not take for text.
    src = [*map(chunk.source.tagged, src)]
    text = (b"", b"") if chunk.split == "train" else (_lines(src), _lines(tgt))
    src_tokens = vocabularies.src.encode_flat(src)
    tgt_tokens = vocabularies.tgt.encode_flat(tgt)
    has_weights = chunk.split == "train" and settings.data.has_pair_weights
    weighted = [chunk.records[place] for place in sifted.kept()] if has_weights else []
    weights = np.array([*map(weight_of, weighted)], np.float32)
    tokens = KeptTokens(*src_tokens, *tgt_tokens, hashes, bands, weights)

    fitting = _filter_tokens(chunk, sifted, tokens, settings)
    tokens = tokens.only(fitting.mask[sifted.kept()])
    unknowns = [
        *_unknown_texts(chunk, fitting, tokens, "src", vocabularies.src),
        *_unknown_texts(chunk, fitting, tokens, "tgt", vocabularies.tgt),
    ]
    return Encoded(fitting, tokens, text, unknowns)


def _filter_text(
    sifted: Sifted,
    src: Sequence[bytes],
    tgt: Sequence[bytes],
    config: FilterConfig,
    languages: tuple[str, str],
) -> Sifted:
    places = sifted.kept()
    if config.identical:
        identical = [a.strip() == b.strip() for a, b in zip(src, tgt, strict=True)]
        sifted = sifted.without(
            places[np.array(identical, bool)],
            filters.IDENTICAL,
            "source and target are identical",
        )
    if config.max_characters or config.max_character_ratio:
        sifted = _filter_characters(sifted, places, src, tgt, config)
    names = "source", "target"
    for name, sentences, language in zip(names, (src, tgt), languages, strict=True):
        if config.script:
            script = filters.script_of(language) or ""
            detail = f"under {config.script:.0%} of the {name}'s letters are {script}"
            in_other_script = filters.other_script(sentences, script, config.script)
            sifted = sifted.without(places[in_other_script], filters.SCRIPT, detail)
    if config.language:
        sifted = _filter_languages(sifted, places, (src, tgt), languages, config.language)
    return sifted


def _filter_characters(
    sifted: Sifted,
    places: Places,
    src: Sequence[bytes],
    tgt: Sequence[bytes],
    config: FilterConfig,
) -> Sifted:
    """Drops pairs of `places` that are long or uneven in characters."""
    sides = [np.array([len(text.decode().strip()) for text in side], int) for side in (src, tgt)]
    shorter, longer = np.minimum(*sides), np.maximum(*sides)

    def detail(place: int) -> str:
        number = np.searchsorted(places, place)
        return f"{sides[0][number]} source and {sides[1][number]} target characters"

    if config.max_characters:
        too_long = places[longer > config.max_characters]
        sifted = sifted.without(too_long, filters.TOO_MANY_CHARACTERS, detail)
    if config.max_character_ratio:
        uneven = places[longer > config.max_character_ratio * shorter]
        sifted = sifted.without(uneven, filters.CHARACTER_RATIO, detail)
    return sifted


def _filter_languages(
    sifted: Sifted,
    places: Places,
    both: tuple[Sequence[bytes], Sequence[bytes]],
    languages: tuple[str, str],
    share: float,
) -> Sifted:
    """Drops pairs of `places` with a side in another language, and says which are swapped."""
    from flaxformer_mt.data.prepare.language_id import in_other_languages, labels_of

    of_src, of_tgt = (
        {int(places[other.place]): other for other in in_other_languages(side, language, share)}
        for side, language in zip(both, languages, strict=True)
    )
    src_labels, tgt_labels = map(labels_of, languages)
    swapped = [
        place
        for place, other in of_src.items()
        if other.language in tgt_labels and place in of_tgt and of_tgt[place].language in src_labels
    ]
    sifted = sifted.without(
        np.array(swapped, np.int64), filters.SWAPPED, "each side is in the other's language"
    )
    sifted = _without_others(sifted, of_src, "source", languages[0])
    return _without_others(sifted, of_tgt, "target", languages[1])


def _without_others(
    sifted: Sifted, others: Mapping[int, OtherLanguage], name: str, language: str
) -> Sifted:
    """Drops the pairs at these places, whose side called `name` isn't in its language."""

    def detail(place: int) -> str:
        other = others[place]
        return (
            f"the {name} looks like '{other.language}'; '{language}' is {other.share:.2g} times as "
            "probable"
        )

    return sifted.without(np.array([*others], np.int64), filters.LANGUAGE, detail)


def _filter_tokens(
    chunk: Chunk, sifted: Sifted, tokens: KeptTokens, settings: EncodingSettings
) -> Sifted:
    """Drops pairs by their tokens. `tokens` are those of all pairs that `sifted` keeps."""
    places = sifted.kept()
    tag = _tag_length(chunk.source.tag, settings.vocabularies.src)
    sifted = _filter_lengths(chunk, sifted, places, tokens, settings, tag)
    tgt_types = settings.data.vocabulary.tgt_types
    if tgt_types == "words":
        return _filter_unknown_words(chunk, sifted, places, tokens, settings.vocabularies.tgt)
    if tgt_types == "brackets" and len(places):
        return _filter_leaves(chunk, sifted, places, tokens, settings.vocabularies.tgt, tag)
    return sifted


def _filter_lengths(
    chunk: Chunk,
    sifted: Sifted,
    places: Places,
    tokens: KeptTokens,
    settings: EncodingSettings,
    tag: int,
) -> Sifted:
    """Drops empty, long and uneven pairs of `places`; a `tag` of so many tokens isn't text."""
    src, tgt = tokens.src_lengths, tokens.tgt_lengths
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
    sifted = sifted.without(places[shorter == 1], EMPTY_SIDE, detail)
    sifted = sifted.without(places[too_long], filters.TOO_LONG, detail)
    return sifted.without(places[uneven], filters.LENGTH_RATIO, detail)


def _filter_unknown_words(
    chunk: Chunk, sifted: Sifted, places: Places, tokens: KeptTokens, vocabulary: Vocabulary
) -> Sifted:
    """Drops targets of `places` with unknown labels: the vocabulary can't write their trees."""

    def detail(place: int) -> str:
        _, tgt = checked(chunk.records[place])
        words = tgt.decode("utf-8").split(" ")
        word = next(word for word in words if UNK in vocabulary.encode([word])[0])
        return f"{word!r}; you can add it to data.vocabulary.tgt_words"

    place_of_token = np.repeat(places, tokens.tgt_lengths)
    with_unknown = np.unique(place_of_token[tokens.tgt == UNK])
    return sifted.without(with_unknown, filters.UNKNOWN_WORD, detail)


def _filter_leaves(
    chunk: Chunk,
    sifted: Sifted,
    places: Places,
    tokens: KeptTokens,
    vocabulary: Vocabulary,
    tag: int,
) -> Sifted:
    """Drops the trees of `places` whose leaves are not, token by token, their sources' words."""
    signs = ("(", ")")
    pieces = [piece.removeprefix(BLANK) for piece in vocabulary.pieces()]
    brackets = [number for number, piece in enumerate(pieces) if piece.startswith(signs)]
    is_leaf = ~np.isin(tokens.tgt, brackets)
    # How many leaves there are up to the end of each target.
    leaf_ends = np.cumsum(is_leaf)[np.cumsum(tokens.tgt_lengths) - 1]
    leaves = np.split(tokens.tgt[is_leaf], leaf_ends[:-1])
    sources = np.split(tokens.src, np.cumsum(tokens.src_lengths)[:-1])
    differ = [
        not np.array_equal(source[tag:], leaf) for source, leaf in zip(sources, leaves, strict=True)
    ]

    def detail(place: int) -> str:
        _, tgt = checked(chunk.records[place])
        words = tgt.decode("utf-8").split(" ")
        unknown = (word for word in words if word.startswith(signs) and word not in pieces)
        label = next(unknown, "")
        if label:
            return f"{label!r}; you can add it to data.vocabulary.tgt_words"
        return "write the target with `trees linearize --leaves words`"

    return sifted.without(places[np.array(differ, bool)], filters.OTHER_LEAVES, detail)


def _tag_length(tag: str, vocabulary: Vocabulary) -> int:
    """The number of tokens that a tag puts before a source, its blank included."""
    return len(vocabulary.encode([tag])[0]) if tag else 0


def _unknown_texts(
    chunk: Chunk, sifted: Sifted, tokens: KeptTokens, side: Side, vocabulary: Vocabulary
) -> list[UnknownText]:
    """The first text of each kept sentence that became an unknown token.

    Of every sentence: which examples are shown must not depend on where chunks end.
    """
    if side == "src":
        ids, lengths = tokens.src, tokens.src_lengths
    else:
        ids, lengths = tokens.tgt, tokens.tgt_lengths
    unknown = np.flatnonzero(ids == UNK)
    rows = np.unique(np.searchsorted(np.cumsum(lengths), unknown, side="right"))
    file = chunk.source.file_of(side)
    unknown_texts = list[UnknownText]()
    for place in sifted.kept()[rows].tolist():
        src, tgt = checked(chunk.records[place])
        sentence = chunk.source.tagged(src) if side == "src" else tgt
        sentence_ids, spans = vocabulary.encode_with_spans(sentence.decode())
        begin, end = spans[sentence_ids.index(UNK)]
        text = sentence[begin:end].decode(errors="replace").strip()
        unknown_texts.append(UnknownText(place, side, file, text))
    return unknown_texts


def record_bytes(records: Sequence[CorpusRecord]) -> int:
    """The size of the lines, about; instead of a missing text its reason counts."""
    size = 0
    for record in records:
        if isinstance(record, NoText):
            size += len(record.reason.encode()) + len(record.detail.encode()) + 2
        else:
            size += sum(map(len, record)) + len(record)
    return size


def sides(chunk: Chunk, sifted: Sifted) -> tuple[list[bytes], list[bytes]]:
    """The kept sources, without the tag, and targets."""
    pairs = [checked(chunk.records[place]) for place in sifted.kept()]
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]


def _lines(sentences: Sequence[bytes]) -> bytes:
    return b"".join(sentence + b"\n" for sentence in sentences)
