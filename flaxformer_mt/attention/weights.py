"""Attention of one kind, layer and some heads, and subword pieces as labels."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Float32

from flaxformer_mt.attention import Kind
from flaxformer_mt.errors import UserError

NAMES: dict[Kind, str] = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Decoder-to-source attention",
}
# Headings of the rows and of the columns.
SIDES: dict[Kind, tuple[str, str]] = {
    "encoder": ("source piece", "attends to"),
    "decoder": ("about to say", "attends to earlier pieces"),
    "cross": ("about to say", "attends to the source"),
}
BOUNDARY = "\u2581"  # SentencePiece's mark of a word's beginning
MARKS = {"<s>": "‹begin›", "</s>": "‹end›", "<unk>": "‹unknown›"}
LONGEST = 32  # characters of a label

# C0 controls and DEL as their pictures; characters that turn the text's direction are replaced.
_VISIBLE = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
_VISIBLE |= dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)


class AttentionError(UserError):
    """A layer, a head or a row that doesn't exist; the message lists those that do."""


class AttentionWeights(Protocol):
    """One sentence's attention in all layers and heads, as `decoding` returns it (`Attention`
    there says what rows and columns are)."""

    @property
    def src_pieces(self) -> tuple[str, ...]: ...
    @property
    def tgt_pieces(self) -> tuple[str, ...]: ...
    @property
    def tgt_inputs(self) -> tuple[str, ...]: ...
    @property
    def encoder(self) -> Float32[np.ndarray, "layers heads src src"]: ...
    @property
    def decoder(self) -> Float32[np.ndarray, "layers heads tgt tgt"]: ...
    @property
    def cross(self) -> Float32[np.ndarray, "layers heads tgt src"]: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Picked:
    """Some heads of one layer; `layer` and `heads` count from 1, as in the paper's captions.

    Row i is the query of `rows[i]`, in the decoder the piece to be said; column j is the key of
    `columns[j]`. `queries` are the rows to show (None: all).
    """

    kind: Kind
    layer: int
    layers: int  # how many there are
    heads: tuple[int, ...]
    of_heads: int  # that the layer has
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: Float32[np.ndarray, "heads rows columns"]
    queries: tuple[int, ...] | None = None

    @property
    def shown_rows(self) -> tuple[int, ...]:
        return tuple(range(len(self.rows))) if self.queries is None else self.queries

    def title(self) -> str:
        *most, last = self.heads
        if len(most) > 1 and last - most[0] == len(most):
            heads = f"heads {most[0]}–{last}"
        else:
            heads = f"heads {', '.join(map(str, most))} and {last}" if most else f"head {last}"
        return f"{NAMES[self.kind]}, layer {self.layer} of {self.layers}, {heads}"


def sides(attention: AttentionWeights, kind: Kind) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The pieces of the rows and of the columns."""
    rows = attention.src_pieces if kind == "encoder" else attention.tgt_pieces
    columns = attention.tgt_inputs if kind == "decoder" else attention.src_pieces
    return rows, columns


def weights_of(
    attention: AttentionWeights, kind: Kind
) -> Float32[np.ndarray, "layers heads rows columns"]:
    return {
        "encoder": attention.encoder,
        "decoder": attention.decoder,
        "cross": attention.cross,
    }[kind]


def pick(
    attention: AttentionWeights,
    *,
    kind: Kind,
    layer: int | None = None,
    heads: Sequence[int] = (),
    query: str | None = None,
) -> Picked:
    """The heads to draw: by default all of the last layer; layers and heads count from 1. `query`
    is a row's number, from 1, or a word. Raises AttentionError for one that doesn't exist."""
    weights = weights_of(attention, kind)
    layers, count = weights.shape[:2]
    layer = layers if layer is None else layer
    if not 1 <= layer <= layers:
        raise AttentionError(
            f"no layer {layer}: the {'encoder' if kind == 'encoder' else 'decoder'} "
            f"has {_numbers(layers)}"
        )
    for head in heads:
        if not 1 <= head <= count:
            raise AttentionError(
                f"no head {head}: a layer of the {kind} kind has {_numbers(count)}"
            )
    chosen = tuple(sorted(set(heads))) or tuple(range(1, count + 1))
    rows, columns = sides(attention, kind)
    return Picked(
        kind=kind,
        layer=layer,
        layers=layers,
        heads=chosen,
        of_heads=count,
        rows=rows,
        columns=columns,
        weights=weights[layer - 1, [head - 1 for head in chosen]],
        queries=None if query is None else _rows_of(query, rows),
    )


def _rows_of(query: str, rows: Sequence[str]) -> tuple[int, ...]:
    if re.fullmatch("[0-9]{1,9}", query) and 1 <= int(query) <= len(rows):
        return (int(query) - 1,)
    # A word as it is written, else without regard to case and punctuation.
    for matches in (lambda word: word == query, lambda word: core(word) == core(query)):
        places = [place for word, span in words(rows) if matches(word) for place in span]
        if places:
            # Without the full stop after a word, unless the query has one.
            bare = [place for place in places if core(shown(rows[place])) in core(query)]
            return tuple(bare or places)
    listed = ", ".join(f"{number} {shown(piece)}" for number, piece in enumerate(rows, start=1))
    raise AttentionError(f"no row {query!r}; rows: {listed}")


def _numbers(count: int) -> str:
    return "only 1" if count == 1 else f"1 to {count}"


def shown(piece: str) -> str:
    """A piece as a label, with a hyphen if it continues a word."""
    if piece in MARKS:
        return MARKS[piece]
    if piece.startswith(BOUNDARY):
        text = piece[1:].replace(BOUNDARY, " ") or BOUNDARY
    else:
        text = f"-{piece}" if any(map(str.isalnum, piece)) else piece
    text = text.translate(_VISIBLE)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def words(pieces: Sequence[str]) -> list[tuple[str, range]]:
    """The words spelled by the pieces, and the places of their pieces; marks are separate words."""
    begins = [
        place
        for place, piece in enumerate(pieces)
        if place == 0 or piece in MARKS or pieces[place - 1] in MARKS or piece.startswith(BOUNDARY)
    ]
    spans = [range(*ends) for ends in itertools.pairwise([*begins, len(pieces)])]
    return [
        ("".join(pieces[place] for place in span).replace(BOUNDARY, ""), span) for span in spans
    ]


def whole_word(pieces: Sequence[str], place: int) -> tuple[int, ...]:
    """The places of a piece's word, without the punctuation around it."""
    (span,) = (span for _, span in words(pieces) if place in span)
    marks = punctuation(pieces)
    return tuple(member for member in span if member == place or member not in marks)


def core(word: str) -> str:
    """A word without the punctuation around it, in lower case."""
    return re.sub(r"^[\W_]+|[\W_]+$", "", word).casefold() or word.casefold()


def punctuation(pieces: Sequence[str]) -> tuple[int, ...]:
    """The places of pieces without letters or digits, except marks."""
    return tuple(
        place
        for place, piece in enumerate(pieces)
        if piece not in MARKS and not any(map(str.isalnum, piece))
    )
