"""The attention of one kind, layer and some heads, picked from that of a sentence."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float32

from flaxformer_mt.decoding import Attention
from flaxformer_mt.figures.errors import FigureError
from flaxformer_mt.figures.labels import core, shown, words

Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NAMES: dict[Kind, str] = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Attention of the decoder over the source",
}
# What the rows are and what the columns are, as headings of the two.
SIDES: dict[Kind, tuple[str, str]] = {
    "encoder": ("source piece", "attends to"),
    "decoder": ("about to say", "attends to what was said"),
    "cross": ("about to say", "attends to the source"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picked:
    """Some heads of one layer; `layer` and `heads` count from 1, as the paper's captions do.

    Row i is the query of `rows[i]`, in the decoder the piece that is about to be said; column j is
    the key of `columns[j]`. `queries` are the rows to be shown; all, if it is None.
    """

    kind: Kind
    layer: int
    layers: int  # how many there are
    heads: tuple[int, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: Float32[np.ndarray, "heads rows columns"]
    queries: tuple[int, ...] | None = None

    @property
    def shown_rows(self) -> tuple[int, ...]:
        return tuple(range(len(self.rows))) if self.queries is None else self.queries

    def title(self) -> str:
        heads = "head" if len(self.heads) == 1 else "heads"
        numbers = _in_words(self.heads)
        return f"{NAMES[self.kind]}, layer {self.layer} of {self.layers}, {heads} {numbers}"


def sides(found: Attention, kind: Kind) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The pieces of rows and of columns."""
    rows = found.src_pieces if kind == "encoder" else found.tgt_pieces
    return rows, found.tgt_inputs if kind == "decoder" else found.src_pieces


def weights_of(found: Attention, kind: Kind) -> Float32[np.ndarray, "layers heads rows columns"]:
    stacks = {"encoder": found.encoder, "decoder": found.decoder, "cross": found.cross}
    return stacks[kind]


def pick(
    found: Attention,
    *,
    kind: Kind,
    layer: int | None = None,
    heads: Sequence[int] = (),
    query: str | None = None,
) -> Picked:
    """What is to be drawn: the last layer and all heads if none are named; they count from 1.

    `query` is the number of a row, from 1, or a word, at all places where it stands.

    Raises FigureError for what there is not, and names what there is.
    """
    weights = weights_of(found, kind)
    layers, count = weights.shape[:2]
    layer = layers if layer is None else layer
    if not 1 <= layer <= layers:
        raise FigureError(f"there is no layer {layer}: {_stack(kind)} has {_numbers(layers)}")
    for head in heads:
        if not 1 <= head <= count:
            raise FigureError(f"there is no head {head}: a layer of the {kind} kind has "
                              f"{_numbers(count)}")  # fmt: skip
    chosen = tuple(sorted(set(heads))) or tuple(range(1, count + 1))
    rows, columns = sides(found, kind)
    return Picked(
        kind=kind,
        layer=layer,
        layers=layers,
        heads=chosen,
        rows=rows,
        columns=columns,
        weights=weights[layer - 1, [head - 1 for head in chosen]],
        queries=None if query is None else _rows_of(query, rows),
    )


def _rows_of(query: str, rows: Sequence[str]) -> tuple[int, ...]:
    if re.fullmatch("[0-9]{1,9}", query) and 1 <= int(query) <= len(rows):
        return (int(query) - 1,)
    there = words(rows)
    for same in (lambda word: word == query, lambda word: core(word) == core(query)):
        found = [span for word, span in there if same(word)]
        if found:
            places = [place for span in found for place in span]
            # Not the full stop after a word that was asked for without one.
            bare = [place for place in places if core(shown(rows[place])) in core(query)]
            return tuple(bare or places)
    listed = ", ".join(f"{number} {shown(piece)}" for number, piece in enumerate(rows, start=1))
    raise FigureError(f"there is no row {query!r}; there are: {listed}")


def _stack(kind: Kind) -> str:
    return "the encoder" if kind == "encoder" else "the decoder"


def _numbers(count: int) -> str:
    return "1 alone" if count == 1 else f"1 to {count}"


def _in_words(numbers: Sequence[int]) -> str:
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}–{numbers[-1]}"
    *most, last = map(str, numbers)
    return f"{', '.join(most)} and {last}" if most else last
