"""Heads worth a picture, found by what they do over many sentences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from jaxtyping import Bool, Float64

from flaxformer_mt.decoding import Attention
from flaxformer_mt.figures.labels import punctuation, shown
from flaxformer_mt.figures.maps import KINDS, Kind, sides, weights_of
from flaxformer_mt.figures.pronouns import pronoun_places
from flaxformer_mt.figures.statistics import FAR, Sums, inner, measure, offsets, strongest


@dataclasses.dataclass(frozen=True)
class Search:
    """Heads with the largest value of a statistic, of some kinds of attention."""

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sentence:
    """A source with the translation that is attended with; `number` is the source's line."""

    number: int
    src: str
    tgt: str
    tokens: tuple[int, ...] | None = None  # of the translation, where the model made it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """A sentence in which a head does what it was found for, and its strongest link of that kind.

    `row` and `column` count from 1; `query` and `key` are their pieces as labels.
    """

    sentence: Sentence
    value: float
    row: int
    column: int
    query: str
    key: str
    weight: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """A head that a search found; layer and head count from 1."""

    search: Search
    kind: Kind
    layer: int
    head: int
    value: float
    examples: tuple[Example, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """Statistics of all heads over `sentences` sentences, and the heads that stand out."""

    sums: dict[Kind, Sums]
    heads: tuple[Head, ...]
    sentences: int
    far: int


def find_heads(
    sentences: Sequence[Sentence],
    attend: Callable[[Sentence], Attention],
    *,
    kinds: Sequence[Kind] = KINDS,
    pronouns: tuple[Collection[str], Collection[str]] = ((), ()),
    far: int = FAR,
    top: int = 3,
    examples: int = 3,
    progress: Callable[[int], None] = lambda done: None,
) -> Found:
    """Measures every head on the sentences, of which there is at least one.

    `attend` is called once a sentence, and once more for those that are shown as examples: their
    maps are not all kept. `pronouns` are the source's and the target's, in lower case. `top` heads
    are named by each search, with so many `examples`; heads with a value of 0 are not.
    """
    sums: dict[Kind, Sums] = {}
    values: dict[Kind, list[dict[str, Float64[np.ndarray, "layers heads"]]]] = {
        kind: [] for kind in kinds
    }
    for done, sentence in enumerate(sentences, start=1):
        attention = attend(sentence)
        for kind in kinds:
            one = _measured(attention, kind, pronouns, far)
            sums[kind] = sums[kind] + one if kind in sums else one
            of_one = one.values()
            values[kind].append({search.statistic: of_one[search.statistic] for search in SEARCHES})
        progress(done)
    heads = []
    for search in SEARCHES:
        for kind, layer, head, value in _best(search, sums, top):
            scores = [of_one[search.statistic][layer, head] for of_one in values[kind]]
            order = sorted(_numbers(scores), key=lambda number: -scores[number])
            shown_ones = [
                _example(search, attend(sentences[number]), sentences[number], kind, layer, head,
                         float(scores[number]), pronouns, far)
                for number in order[:examples]
            ]  # fmt: skip
            heads.append(
                Head(
                    search=search,
                    kind=kind,
                    layer=layer + 1,
                    head=head + 1,
                    value=value,
                    examples=tuple(example for example in shown_ones if example is not None),
                )
            )
    return Found(sums=sums, heads=tuple(heads), sentences=len(sentences), far=far)


def _measured(
    attention: Attention,
    kind: Kind,
    pronouns: tuple[Collection[str], Collection[str]],
    far: int,
) -> Sums:
    rows, columns = sides(attention, kind)
    return measure(
        weights_of(attention, kind),
        kind,
        far=far,
        pronouns=pronoun_places(rows, pronouns[kind != "encoder"]),
        punctuation=punctuation(columns),
    )


def _best(
    search: Search, sums: dict[Kind, Sums], top: int
) -> Iterable[tuple[Kind, int, int, float]]:
    """Kind, layer and head (from 0) of the largest values above 0."""
    found = [
        (kind, layer, head, float(value))
        for kind in search.kinds
        if kind in sums
        for (layer, head), value in np.ndenumerate(sums[kind].values()[search.statistic])
        if value > 0
    ]
    return sorted(found, key=lambda one: -one[3])[:top]


def _numbers(scores: Sequence[float]) -> list[int]:
    return [number for number, score in enumerate(scores) if score > 0]


def _example(
    search: Search,
    attention: Attention,
    sentence: Sentence,
    kind: Kind,
    layer: int,
    head: int,
    value: float,
    pronouns: tuple[Collection[str], Collection[str]],
    far: int,
) -> Example | None:
    rows, columns = sides(attention, kind)
    weights = weights_of(attention, kind)[layer, head]
    link = strongest(weights, kind, _wanted(search, rows, columns, kind, pronouns, far))
    if link is None:
        return None
    row, column = link
    return Example(
        sentence=sentence,
        value=value,
        row=row + 1,
        column=column + 1,
        query=shown(rows[row]),
        key=shown(columns[column]),
        weight=float(weights[row, column]),
    )


def _wanted(
    search: Search,
    rows: Sequence[str],
    columns: Sequence[str],
    kind: Kind,
    pronouns: tuple[Collection[str], Collection[str]],
    far: int,
) -> Bool[np.ndarray, "rows columns"]:
    """The links that a search is about, of the inner rows and columns."""
    queries, keys = inner(kind, len(rows), len(columns))
    away = offsets(kind, len(queries), len(keys))
    if search.statistic == "reach":
        distant = np.abs(away) >= far
        # Of words where there are some, as in the paper's figure: a full stop looks far, too.
        written = ~np.isin(np.array(queries), punctuation(rows))[:, None]
        written = written & ~np.isin(np.array(keys), punctuation(columns))
        return distant & written if (distant & written).any() else distant
    if search.statistic == "anaphora":
        asked = np.isin(np.array(queries), pronoun_places(rows, pronouns[kind != "encoder"]))
        return (away <= -2) & asked[:, None] & ~np.isin(np.array(keys), punctuation(columns))
    # Neighbours tell little of structure, where there are others.
    apart = np.abs(away) >= 2
    return apart if apart.any() else np.ones_like(apart)
