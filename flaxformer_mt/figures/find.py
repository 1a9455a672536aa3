"""Finds heads worth a picture by their behaviour over many sentences, and reports them."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64

from flaxformer_mt.attention import KINDS, Kind
from flaxformer_mt.attention.weights import punctuation, shown, sides, weights_of
from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.decoding.text.segments import fits
from flaxformer_mt.figures import FAR, FigureError
from flaxformer_mt.figures.statistics import (
    DEFINITIONS,
    HeadSums,
    inner,
    measure,
    offsets,
    pronoun_places,
    strongest,
)
from flaxformer_mt.text_table import aligned

if TYPE_CHECKING:
    from flaxformer_mt.decoding.teacher_forcing import Attention
    from flaxformer_mt.decoding.translator import Translator

Pronouns = tuple[Collection[str], Collection[str]]  # of the source and of the target


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttendedSentence:
    """A source and the translation for its attention; `number` is the source's line."""

    number: int
    src: str
    tgt: str
    tokens: tuple[int, ...] | None = None  # of the translation, where the model made it


def sentences_of(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    most: int,
    translated: bool = True,
    say: Callable[[str], None] = lambda note: None,
) -> list[AttendedSentence]:
    """The first `most` usable lines, with their `targets` or the model's translations (without
    `translated`, empty ones, enough for encoder attention). `say` gets notes on lines left out.
    Raises FigureError."""
    if targets is not None and len(targets) != len(sources):
        raise FigureError(f"{len(sources):,} source lines but {len(targets):,} translations")
    lines = _Lines.of(translator, sources, targets, most=most)
    if not lines.usable:
        raise FigureError("no usable sentence: every line is blank or too long for the model")

    for note in lines.notes():
        say(note)
    if translated and targets is None:
        return with_translations(translator, lines.usable)
    return lines.usable


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Lines:
    """The lines of a file: those to use, the numbers of those that can't be used, and how many come
    `beyond` the last one to use."""

    usable: list[AttendedSentence]
    blank: list[int]
    overlong: list[int]
    beyond: int

    @classmethod
    def of(
        cls,
        translator: Translator,
        sources: Sequence[str],
        targets: Sequence[str] | None,
        *,
        most: int,
    ) -> _Lines:
        src_fits = fits(translator.vocabularies.src, translator.max_length)
        tgt_fits = fits(translator.vocabularies.tgt, translator.max_length)
        translations = [""] * len(sources) if targets is None else targets
        usable: list[AttendedSentence] = []
        blank: list[int] = []
        overlong: list[int] = []
        beyond = 0
        for number, (src, tgt) in enumerate(zip(sources, translations, strict=True), start=1):
            if len(usable) == most:
                beyond += 1
            elif is_blank(src) or (targets is not None and is_blank(tgt)):
                blank.append(number)
            elif not (src_fits(src) and tgt_fits(tgt)):
                overlong.append(number)
            else:
                usable.append(AttendedSentence(number=number, src=src, tgt=tgt))
        return cls(usable=usable, blank=blank, overlong=overlong, beyond=beyond)

    def notes(self) -> Iterator[str]:
        """Sentences about the lines that are left out."""
        for reason, numbers in {
            "blank": self.blank,
            "too long for the model": self.overlong,
        }.items():
            if numbers:
                listed = ", ".join(map(str, numbers[:10])) + (" …" if len(numbers) > 10 else "")
                yield f"skipped {len(numbers)} lines that are {reason}: {listed}"
        if self.beyond:
            yield (
                f"using the first {len(self.usable):,} sentences, "
                f"without {self.beyond:,} more lines (--sentences)"
            )


def attend(translator: Translator, sentence: AttendedSentence) -> Attention:
    return translator.attend(sentence.src, sentence.tokens or sentence.tgt)


def with_translations(
    translator: Translator, sentences: Sequence[AttendedSentence]
) -> list[AttendedSentence]:
    """With the model's own. Raises OverlongError."""
    sources = [sentence.src for sentence in sentences]
    translations = translator.translate(sources, overlong="refuse", several="keep")
    return [
        dataclasses.replace(sentence, tgt=translation.text, tokens=translation.tokens)
        for sentence, translation in zip(sentences, translations, strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class Search:
    """Finds the heads with the largest value of a statistic, for some kinds of attention."""

    name: str
    statistic: str
    kinds: tuple[Kind, ...]


SELF: tuple[Kind, ...] = ("encoder", "decoder")
SEARCHES = (
    Search("long distance", "reach", SELF),  # the paper's figure 3
    Search("anaphora", "anaphora", SELF),  # figure 4
    Search("structure", "structure", SELF),  # figure 5
    Search("reordering", "reach", ("cross",)),
)
_SHOWN = "distance entropy diagonal previous next mark far reach structure".split()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """A sentence that shows what a head was found for, with the strongest such link; `row` and
    `column` count from 1."""

    sentence: AttendedSentence
    value: float
    row: int
    column: int
    query: str
    key: str
    weight: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """A head that was found; layer and head count from 1."""

    search: Search
    kind: Kind
    layer: int
    head: int
    value: float
    examples: tuple[Example, ...] = ()

    @property
    def place(self) -> tuple[int, int]:
        """Layer and head as indices of an array."""
        return self.layer - 1, self.head - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadFindings:
    """Statistics of all heads over `sentences` sentences, and the heads that stand out."""

    sums: dict[Kind, HeadSums]
    heads: tuple[Head, ...]
    sentences: int
    far: int


def find_heads(
    sentences: Sequence[AttendedSentence],
    attend: Callable[[AttendedSentence], Attention],
    *,
    kinds: Sequence[Kind] = KINDS,
    pronouns: Pronouns = ((), ()),
    far: int = FAR,
    top: int = 3,
    examples: int = 3,
    progress: Callable[[int], None] = lambda done: None,
) -> HeadFindings:
    """Measures every head on the sentences, at least one.

    `attend` is called again for the examples, since maps aren't kept. `pronouns` are in lower case.
    Each search names at most `top` heads with values above 0, each with `examples`.
    """
    sums: dict[Kind, HeadSums] = {}
    statistics: list[_Statistics] = []  # of each sentence
    for count, sentence in enumerate(sentences, start=1):
        attention = attend(sentence)
        measured = {kind: _measured(attention, kind, pronouns, far) for kind in kinds}
        for kind, sentence_sums in measured.items():
            sums[kind] = sums[kind] + sentence_sums if kind in sums else sentence_sums
        statistics.append({kind: head_sums.values() for kind, head_sums in measured.items()})
        progress(count)

    heads = []
    for head in _outstanding_heads(sums, top):
        scores = [
            float(sentence[head.kind][head.search.statistic][head.place]) for sentence in statistics
        ]
        chosen = tuple(
            _example(head, attend(sentences[index]), sentences[index], scores[index], pronouns, far)
            for index in _best(scores, examples)
        )
        heads.append(dataclasses.replace(head, examples=chosen))
    return HeadFindings(sums=sums, heads=tuple(heads), sentences=len(sentences), far=far)


# By kind of attention and name of the statistic.
_Statistics = dict[Kind, dict[str, Float64[np.ndarray, "layers heads"]]]


def _measured(attention: Attention, kind: Kind, pronouns: Pronouns, far: int) -> HeadSums:
    rows, columns = sides(attention, kind)
    return measure(
        weights_of(attention, kind),
        kind,
        far=far,
        pronouns=pronoun_places(rows, pronouns[kind != "encoder"]),
        punctuation=punctuation(columns),
    )


def _outstanding_heads(sums: Mapping[Kind, HeadSums], top: int) -> Iterator[Head]:
    """For each search, at most `top` heads with values above 0, the largest first."""
    for search in SEARCHES:
        heads = [
            Head(search=search, kind=kind, layer=layer + 1, head=head + 1, value=float(value))
            for kind in search.kinds
            if kind in sums
            for (layer, head), value in np.ndenumerate(sums[kind].values()[search.statistic])
            if value > 0
        ]
        yield from sorted(heads, key=lambda head: -head.value)[:top]


def _best(scores: Sequence[float], most: int) -> list[int]:
    """The places of at most `most` scores above 0, the largest first."""
    positive = [place for place, score in enumerate(scores) if score > 0]
    return sorted(positive, key=scores.__getitem__, reverse=True)[:most]


def _example(
    head: Head,
    attention: Attention,
    sentence: AttendedSentence,
    value: float,
    pronouns: Pronouns,
    far: int,
) -> Example:
    """For a sentence with a value above 0, which has such a link."""
    rows, columns = sides(attention, head.kind)
    weights = weights_of(attention, head.kind)[head.place]  # [rows, columns]
    candidates = _candidates(head, rows, columns, pronouns, far)
    row, column = strongest(weights, head.kind, candidates)
    return Example(
        sentence=sentence,
        value=value,
        row=row + 1,
        column=column + 1,
        query=shown(rows[row]),
        key=shown(columns[column]),
        weight=float(weights[row, column]),
    )


def _candidates(
    head: Head, rows: Sequence[str], columns: Sequence[str], pronouns: Pronouns, far: int
) -> Bool[np.ndarray, "queries keys"]:
    """The links, of `inner` rows and columns, that may show what the head was found for."""
    queries, keys = inner(head.kind, len(rows), len(columns))
    away = offsets(head.kind, len(queries), len(keys))  # [queries, keys]
    is_word = ~np.isin(np.array(keys), punctuation(columns))  # [keys]

    if head.search.statistic == "reach":
        distant = np.abs(away) >= far
        # Of words where there are some, as in the paper's figure: a full stop looks far, too.
        from_word = ~np.isin(np.array(queries), punctuation(rows))  # [queries]
        between_words = distant & is_word & from_word[:, None]
        return between_words if between_words.any() else distant

    if head.search.statistic == "anaphora":
        places = pronoun_places(rows, pronouns[head.kind != "encoder"])
        is_pronoun = np.isin(np.array(queries), places)  # [queries]
        return (away <= -2) & is_pronoun[:, None] & is_word

    # Neighbours tell little of structure.
    beyond_neighbours = np.abs(away) >= 2
    return beyond_neighbours if beyond_neighbours.any() else ~beyond_neighbours


def described(findings: HeadFindings, *, model: Sequence[str], decoding: Sequence[str]) -> str:
    """A table of all heads, the meanings of its columns, and the heads of each search, with
    examples and the first one's `command`."""
    has_pronouns = any(sums.pronouns for sums in findings.sums.values())
    columns = [*_SHOWN, *(["anaphora"] if has_pronouns else [])]
    rows = [
        [kind, str(layer), str(head), *(_cell(name, statistics[name]) for name in columns)]
        for kind, layer, head, statistics in _all_heads(findings)
    ]
    meanings = [f"  {name:9} {DEFINITIONS[name].format(far=findings.far)}" for name in columns]
    blocks = [
        aligned(["kind", "layer", "head", *columns], rows),
        "\n".join(["Over the sentences' pieces, without marks:", *meanings]),
    ]
    for search in dict.fromkeys(head.search for head in findings.heads):
        lines = [f"{search.name} (by {search.statistic!r})"]
        for head in findings.heads:
            if head.search == search:
                lines += _described_head(head, model=model, decoding=decoding)
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _described_head(head: Head, *, model: Sequence[str], decoding: Sequence[str]) -> Iterator[str]:
    value = _cell(head.search.statistic, head.value)
    yield f"  {head.kind} layer {head.layer} head {head.head}: {value}"
    for example in head.examples:
        link = f"{example.query} → {example.key} {example.weight:.0%}"
        yield f"    line {example.sentence.number}: {link} · {example.sentence.src}"
    for example in head.examples[:1]:
        yield f"    {command(head, example, model=model, decoding=decoding)}"


def command(head: Head, example: Example, *, model: Sequence[str], decoding: Sequence[str]) -> str:
    """The command that draws an example, with `model` and `decoding` flags for the model and its
    search."""
    words = ["flaxformer-mt", "attention", *model, "--src", example.sentence.src]
    if head.kind != "encoder":  # encoder attention needs no translation
        is_model_s = example.sentence.tokens is not None
        words += decoding if is_model_s else ["--tgt", example.sentence.tgt]
    words += ["--kind", head.kind, "--layer", str(head.layer), "--head", str(head.head)]
    words += ["--query", str(example.row), "--output", "attention.svg"]
    return shlex.join(words)


def to_json(findings: HeadFindings) -> dict[str, Any]:
    """All statistics of all heads, and the heads found; undefined values are null."""
    heads = []
    for kind, layer, head, statistics in _all_heads(findings):
        defined = {name: None if math.isnan(mean) else mean for name, mean in statistics.items()}
        heads.append({"kind": kind, "layer": layer, "head": head, **defined})
    far = findings.far
    return {
        "sentences": findings.sentences,
        "far": far,
        "queries": {kind: sums.queries for kind, sums in findings.sums.items()},
        "pronouns": {kind: sums.pronouns for kind, sums in findings.sums.items()},
        "statistics": {name: text.format(far=far) for name, text in DEFINITIONS.items()},
        "heads": heads,
        "found": [_head_json(head) for head in findings.heads],
    }


def _head_json(head: Head) -> dict[str, Any]:
    return {
        "search": head.search.name,
        "statistic": head.search.statistic,
        "kind": head.kind,
        "layer": head.layer,
        "head": head.head,
        "value": head.value,
        "examples": [_example_json(head, example) for example in head.examples],
    }


def _example_json(head: Head, example: Example) -> dict[str, Any]:
    sentence = example.sentence
    return {
        "line": sentence.number,
        "source": sentence.src,
        "translation": None if head.kind == "encoder" else sentence.tgt,
        "value": example.value,
        "row": example.row,
        "column": example.column,
        "query": example.query,
        "key": example.key,
        "weight": example.weight,
    }


def _all_heads(findings: HeadFindings) -> Iterator[tuple[Kind, int, int, dict[str, float]]]:
    """Kind, layer and head, from 1, and the head's statistics by name."""
    for kind, sums in findings.sums.items():
        statistics = sums.values()
        for layer, head in np.ndindex(sums.offsets.shape[:2]):
            numbers = {name: float(means[layer, head]) for name, means in statistics.items()}
            yield kind, layer + 1, head + 1, numbers


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.2f}" if name in ("distance", "entropy", "structure") else f"{value:.1%}"
