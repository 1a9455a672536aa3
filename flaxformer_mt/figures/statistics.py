"""Statistics of heads: sums over the queries of many sentences, for all heads at once.

Queries and keys are the sentence's pieces. The mark among every map's keys (the source's end mark,
the decoder's begin mark) is counted separately, since heads rest there. The end mark's own query is
left out, and the decoder's first, which sees only the mark.

An offset is how many pieces after the query's own place a key is. In the decoder the query is the
piece to be said, and the nearest key, the piece before it, is at -1; over the source, a query's own
place is in proportion.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from flaxformer_mt.attention import Kind
from flaxformer_mt.attention.weights import core, words
from flaxformer_mt.figures import FAR

REACH = 32  # offsets beyond count as this one, where their variety is measured
_PLACES = (("previous", -1), ("diagonal", 0), ("next", 1))

# Pronouns that refer to something earlier, by language. Lists of words and no grammar: some
# are other words elsewhere ("sie" is "you" as well; "sein", mostly the verb, is left out).
PRONOUNS = {
    "en": "he him his himself she her hers herself it its itself they them their theirs themselves",
    "de": "er ihn ihm seine seinen seinem seiner seines sie ihr ihre ihren ihrem ihrer ihres "
    "es ihnen sich",
    "fr": "il elle ils elles lui leur leurs eux son sa ses sien sienne celui celle ceux celles",
}

# `{far}` stands for the number of pieces.
DEFINITIONS = {
    "distance": "mean distance of the keys in pieces, weighted by attention, without marks",
    "entropy": "mean entropy of a query's weights in bits: 0 is one key, 3 as wide as 8 keys",
    "diagonal": "share of the attention on the query's own position",
    "previous": "share on the piece before it",
    "next": "share on the piece after it",
    "mark": "share on the end mark (decoder self-attention: the begin mark)",
    "far": "share on pieces at least {far} pieces away",
    "reach": "mean of a query's largest weight on a piece at least {far} pieces away: sharp "
    "long-distance links, while `far` also counts spread-out attention",
    "sharpness": "mean of a query's largest weight on a piece",
    "variety": "entropy in bits of the largest weights' offsets: 0 for a head with a fixed offset",
    "structure": "sharpness times variety: single pieces at varying offsets. Check the pictures "
    "for syntax",
    "anaphora": "mean, over queries in a list of pronouns, of the largest weight on a piece at "
    "least two before them that is not punctuation. Check the pictures for what the pronoun "
    "refers to; undefined for decoder-to-source attention",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadSums:
    """Sums over queries. `by_name` has those of DEFINITIONS, "pieces" (the weight on pieces) and
    "links" (the largest weights)."""

    queries: int
    pronouns: int
    by_name: Mapping[str, Float64[np.ndarray, "layers heads"]]
    offsets: Float64[np.ndarray, "layers heads offsets"]  # largest weights by offset, from -REACH

    def __add__(self, other: HeadSums) -> HeadSums:
        return HeadSums(
            queries=self.queries + other.queries,
            pronouns=self.pronouns + other.pronouns,
            by_name={name: sums + other.by_name[name] for name, sums in self.by_name.items()},
            offsets=self.offsets + other.offsets,
        )

    def values(self) -> dict[str, Float64[np.ndarray, "layers heads"]]:
        """The statistics of DEFINITIONS by name; NaN for the mean of nothing."""
        shares = self.offsets / _or_nan(self.offsets.sum(axis=-1, keepdims=True))
        means = {name: sums / _or_nan(self.queries) for name, sums in self.by_name.items()}
        means["distance"] = self.by_name["distance"] / _or_nan(self.by_name["pieces"])
        means["anaphora"] = self.by_name["anaphora"] / _or_nan(self.pronouns)
        means["sharpness"] = means["links"]
        means["variety"] = _entropy(shares)
        means["structure"] = means["sharpness"] * means["variety"]
        return {name: means[name] for name in DEFINITIONS}


def measure(
    weights: Float[np.ndarray, "layers heads rows columns"],
    kind: Kind,
    *,
    far: int = FAR,
    pronouns: Sequence[int] = (),
    punctuation: Sequence[int] = (),
) -> HeadSums:
    """The sums of one sentence, given the rows of `pronouns` and the columns of `punctuation`."""
    rows, columns = inner(kind, weights.shape[2], weights.shape[3])
    weights = np.asarray(weights, np.float64)[:, :, rows.start : rows.stop]
    mark = weights[..., 0] if kind == "decoder" else weights[..., -1]  # [layers, heads, queries]
    pieces = weights[..., columns.start : columns.stop]  # [layers, heads, queries, keys]
    away = offsets(kind, len(rows), len(columns))  # [queries, keys]

    # Each query's largest weight: on any piece, and on an earlier word for pronouns.
    links = pieces.max(axis=-1, initial=0.0)  # [layers, heads, queries]
    is_word = ~np.isin(np.array(columns), punctuation)  # [keys]
    referents = np.where((away <= -2) & is_word, pieces, 0.0).max(axis=-1, initial=0.0)
    pronoun_queries = [row - rows.start for row in pronouns if row in rows and kind != "cross"]

    distant = np.where(np.abs(away) >= far, pieces, 0.0)  # [layers, heads, queries, keys]
    at_offset = {name: (pieces * (away == offset)).sum(axis=(-2, -1)) for name, offset in _PLACES}
    return HeadSums(
        queries=len(rows),
        pronouns=len(pronoun_queries),
        by_name={  # each [layers, heads]
            **at_offset,
            "entropy": _entropy(weights).sum(axis=-1),
            "mark": mark.sum(axis=-1),
            "far": distant.sum(axis=(-2, -1)),
            "reach": distant.max(axis=-1, initial=0.0).sum(axis=-1),
            "distance": (pieces * np.abs(away)).sum(axis=(-2, -1)),
            "anaphora": referents[..., pronoun_queries].sum(axis=-1),
            "pieces": pieces.sum(axis=(-2, -1)),
            "links": links.sum(axis=-1),
        },
        offsets=_links_by_offset(pieces, away),
    )


def _links_by_offset(
    pieces: Float64[np.ndarray, "layers heads queries keys"],
    away: Int[np.ndarray, "queries keys"],
) -> Float64[np.ndarray, "layers heads offsets"]:
    """Each query's largest weight on a piece, added up by that piece's offset from -REACH."""
    layers, heads, queries, keys = pieces.shape
    sums = np.zeros((layers, heads, 2 * REACH + 1))
    if keys == 0:
        return sums
    links = pieces.max(axis=-1, initial=0.0)  # [layers, heads, queries]
    offset = away[np.arange(queries), pieces.argmax(axis=-1)]  # [layers, heads, queries]
    layer, head, _ = np.indices(links.shape)
    np.add.at(sums, (layer, head, np.clip(offset, -REACH, REACH) + REACH), links)
    return sums


def pronouns_of(language: str) -> frozenset[str]:
    """The words for a language code such as "en" or "en-GB"; none if there is no list."""
    return frozenset(PRONOUNS.get(re.split("[-_]", language.lower())[0], "").split())


def pronoun_places(pieces: Sequence[str], listed: Collection[str]) -> tuple[int, ...]:
    """Where listed words begin among the pieces; "it's" counts as "it"."""
    return tuple(
        span.start
        for word, span in words(pieces)
        if re.split("['’]", core(word), maxsplit=1)[0] in listed
    )


def inner(kind: Kind, rows: int, columns: int) -> tuple[range, range]:
    """The rows that count as queries, and the columns that are pieces of the sentence."""
    if kind == "decoder":
        return range(1, max(rows - 1, 1)), range(1, columns)
    return range(rows - 1), range(columns - 1)


def offsets(kind: Kind, rows: int, columns: int) -> Int[np.ndarray, "rows columns"]:
    """How far each key is after the query's own place, for `inner` rows and columns."""
    places = np.arange(rows)
    if kind == "decoder":
        places = places + 1  # the first of these rows says the second piece
    elif kind == "cross":
        places = np.floor(places * max(columns - 1, 0) / max(rows - 1, 1) + 0.5).astype(np.int64)
    return np.arange(columns)[None, :] - places[:, None]


def strongest(
    weights: Float[np.ndarray, "rows columns"],
    kind: Kind,
    candidates: Bool[np.ndarray, "queries keys"],
) -> tuple[int, int]:
    """The largest weight among `candidates` (of `inner`), as row and column of the whole map."""
    rows, columns = inner(kind, *weights.shape)
    pieces = weights[rows.start : rows.stop, columns.start : columns.stop]
    place = np.where(candidates, pieces, -1.0).argmax()
    row, column = np.unravel_index(place, candidates.shape)
    return int(row) + rows.start, int(column) + columns.start


def _entropy(shares: Float64[np.ndarray, "*axes keys"]) -> Float64[np.ndarray, "*axes"]:
    """In bits, over the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(shares > 0, -shares * np.log2(shares), 0.0)
    entropy = terms.sum(axis=-1) + 0.0  # not -0
    return np.where(np.isnan(shares).any(axis=-1), np.nan, entropy)


def _or_nan(
    count: int | Float64[np.ndarray, "*axes"],
) -> Float64[np.ndarray, "*axes"]:
    return np.where(np.asarray(count) > 0, count, np.nan)
