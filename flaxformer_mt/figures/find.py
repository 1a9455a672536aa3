"""Finds heads worth a picture by their behaviour over many sentences, and reports them."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64

from flaxformer_mt.data.normalization import is_blank
from flaxformer_mt.decoding.segments import fits
from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.maps import KINDS, Kind, punctuation, shown, sides, weights_of
from flaxformer_mt.figures.statistics import (
    DEFINITIONS,
    FAR,
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
    `translated`, empty ones, enough for encoder attention). `say` gets what is left out. Raises
    FigureError."""
    if targets is not None and len(targets) != len(sources):
        raise FigureError(f"{len(sources):,} source lines but {len(targets):,} translations")
    src_fits = fits(translator.vocabularies.src, translator.max_length)
    tgt_fits = fits(translator.vocabularies.tgt, translator.max_length)
    given = [""] * len(sources) if targets is None else targets
    used: list[AttendedSentence] = []
    blank, overlong, beyond = list[int](), list[int](), 0
    for number, (src, tgt) in enumerate(zip(sources, given, strict=True), start=1):
        if len(used) == most:
            beyond += 1
        elif is_blank(src) or (targets is not None and is_blank(tgt)):
            blank.append(number)
        elif not (src_fits(src) and tgt_fits(tgt)):
            overlong.append(number)
        else:
            used.append(AttendedSentence(number=number, src=src, tgt=tgt))
    if not used:
        raise FigureError("no usable sentence: every line is blank or too long for the model")
    for what, numbers in {"blank": blank, "too long for the model": overlong}.items():
        if numbers:
            listed = ", ".join(map(str, numbers[:10])) + (" …" if len(numbers) > 10 else "")
            say(f"skipped {len(numbers)} lines that are {what}: {listed}")
    if beyond:
        kept = f"using the first {len(used):,} sentences"
        say(f"{kept}, without {beyond:,} more lines (--sentences)")
    return with_translations(translator, used) if translated and targets is None else used


def attend(translator: Translator, sentence: AttendedSentence) -> Attention:
    return translator.attend(sentence.src, sentence.tokens or sentence.tgt)


def with_translations(
    translator: Translator, sentences: Sequence[AttendedSentence]
) -> list[AttendedSentence]:
    """With the model's own. Raises OverlongError."""
    sources = [sentence.src for sentence in sentences]
    made = translator.translate(sources, overlong="refuse", several="keep")
    return [
        dataclasses.replace(sentence, tgt=translation.text, tokens=translation.tokens)
        for sentence, translation in zip(sentences, made, strict=True)
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
    """A sentence in which a head does what it was found for, and its strongest such link, from
    1."""

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
    values: list[dict[Kind, dict[str, Float64[np.ndarray, "layers heads"]]]] = []
    for done, sentence in enumerate(sentences, start=1):
        attention = attend(sentence)
        measured = {}
        for kind in kinds:
            rows, columns = sides(attention, kind)
            measured[kind] = measure(
                weights_of(attention, kind),
                kind,
                far=far,
                pronouns=pronoun_places(rows, pronouns[kind != "encoder"]),
                punctuation=punctuation(columns),
            )
        sums = {kind: sums[kind] + one if sums else one for kind, one in measured.items()}
        values.append({kind: one.values() for kind, one in measured.items()})
        progress(done)
    heads = []
    for search in SEARCHES:
        of_search = [
            Head(search=search, kind=kind, layer=layer + 1, head=head + 1, value=float(value))
            for kind in search.kinds
            if kind in sums
            for (layer, head), value in np.ndenumerate(sums[kind].values()[search.statistic])
            if value > 0
        ]
        for head in sorted(of_search, key=lambda head: -head.value)[:top]:
            place = head.layer - 1, head.head - 1
            scores = [float(one[head.kind][search.statistic][place]) for one in values]
            shows_it = [number for number, score in enumerate(scores) if score > 0]
            best = sorted(shows_it, key=scores.__getitem__, reverse=True)[:examples]
            chosen = tuple(
                _example(head, attend(sentences[n]), sentences[n], scores[n], pronouns, far)
                for n in best
            )
            heads.append(dataclasses.replace(head, examples=chosen))
    return HeadFindings(sums=sums, heads=tuple(heads), sentences=len(sentences), far=far)


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
    weights = weights_of(attention, head.kind)[head.layer - 1, head.head - 1]
    queries, keys = inner(head.kind, len(rows), len(columns))
    away = offsets(head.kind, len(queries), len(keys))
    worded = ~np.isin(np.array(keys), punctuation(columns))
    wanted: Bool[np.ndarray, "rows columns"]
    if head.search.statistic == "reach":
        wanted = np.abs(away) >= far
        # Of words where there are some, as in the paper's figure: a full stop looks far, too.
        written = wanted & worded & ~np.isin(np.array(queries), punctuation(rows))[:, None]
        wanted = written if written.any() else wanted
    elif head.search.statistic == "anaphora":
        asked = np.isin(np.array(queries), pronoun_places(rows, pronouns[head.kind != "encoder"]))
        wanted = (away <= -2) & asked[:, None] & worded
    else:
        # Neighbours tell little of structure, where there are others.
        wanted = np.abs(away) >= 2
        wanted = wanted if wanted.any() else ~wanted
    row, column = strongest(weights, head.kind, wanted)
    return Example(
        sentence=sentence,
        value=value,
        row=row + 1,
        column=column + 1,
        query=shown(rows[row]),
        key=shown(columns[column]),
        weight=float(weights[row, column]),
    )


def described(found: HeadFindings, *, model: Sequence[str], decoding: Sequence[str]) -> str:
    """A table of all heads with what its columns mean, and the heads of each search, with examples
    and the first one's `command`."""
    has_pronouns = any(sums.pronouns for sums in found.sums.values())
    columns = [*_SHOWN, *(["anaphora"] if has_pronouns else [])]
    rows = [
        [kind, str(layer), str(head), *(_cell(name, values[name]) for name in columns)]
        for kind, layer, head, values in _all_heads(found)
    ]
    meanings = [f"  {name:9} {DEFINITIONS[name].format(far=found.far)}" for name in columns]
    blocks = [
        aligned(["kind", "layer", "head", *columns], rows),
        "\n".join(["Over the sentences' pieces, without marks:", *meanings]),
    ]
    for search in dict.fromkeys(head.search for head in found.heads):
        lines = [f"{search.name} (by {search.statistic!r})"]
        for head in (head for head in found.heads if head.search == search):
            value = _cell(search.statistic, head.value)
            lines.append(f"  {head.kind} layer {head.layer} head {head.head}: {value}")
            for example in head.examples:
                link = f"{example.query} → {example.key} {example.weight:.0%}"
                lines.append(f"    line {example.sentence.number}: {link} · {example.sentence.src}")
            for example in head.examples[:1]:
                lines.append(f"    {command(head, example, model=model, decoding=decoding)}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def command(head: Head, example: Example, *, model: Sequence[str], decoding: Sequence[str]) -> str:
    """The command that draws an example, with `model` and `decoding` flags for the model and its
    search."""
    words = ["flaxformer-mt", "attention", *model, "--src", example.sentence.src]
    if head.kind != "encoder":  # which knows of no translation
        given = example.sentence.tokens is None
        words += ["--tgt", example.sentence.tgt] if given else decoding
    words += ["--kind", head.kind, "--layer", str(head.layer), "--head", str(head.head)]
    return shlex.join([*words, "--query", str(example.row), "--output", "attention.svg"])


def to_json(found: HeadFindings) -> dict[str, Any]:
    """All statistics of all heads, and the heads found; undefined values are null."""
    heads = []
    for kind, layer, head, values in _all_heads(found):
        of_head = {name: None if math.isnan(value) else value for name, value in values.items()}
        heads.append({"kind": kind, "layer": layer, "head": head, **of_head})
    return {
        "sentences": found.sentences,
        "far": found.far,
        "queries": {kind: sums.queries for kind, sums in found.sums.items()},
        "pronouns": {kind: sums.pronouns for kind, sums in found.sums.items()},
        "statistics": {name: text.format(far=found.far) for name, text in DEFINITIONS.items()},
        "heads": heads,
        "found": [*map(_head_json, found.heads)],
    }


def _head_json(head: Head) -> dict[str, Any]:
    examples = []
    for example in head.examples:
        of = example.sentence
        link = ("value", "row", "column", "query", "key", "weight")
        translation = of.tgt if head.kind != "encoder" else None
        about = {"line": of.number, "source": of.src, "translation": translation}
        examples.append(about | {name: getattr(example, name) for name in link})
    where = {"kind": head.kind, "layer": head.layer, "head": head.head, "value": head.value}
    named = {"search": head.search.name, "statistic": head.search.statistic}
    return {**named, **where, "examples": examples}


def _all_heads(found: HeadFindings) -> Iterator[tuple[Kind, int, int, dict[str, float]]]:
    for kind, sums in found.sums.items():
        values = sums.values()
        for layer, head in np.ndindex(sums.offsets.shape[:2]):
            of_head = {name: float(each[layer, head]) for name, each in values.items()}
            yield kind, layer + 1, head + 1, of_head


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value:.2f}" if name in ("distance", "entropy", "structure") else f"{value:.1%}"
