"""Attention as lines from each piece to what it looks at, as in the paper's figures 3 to 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32

from flaxformer_mt.figures.canvas import INK, QUIET, Layout, Sheet, Size, text_width, widest
from flaxformer_mt.figures.colours import head_colours
from flaxformer_mt.figures.labels import shown
from flaxformer_mt.figures.maps import SIDES, Picked

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAINTEST = 0.01  # weights below are not drawn: nobody would see them
_ROW, _FONT, _GAP, _MARGIN = 21.0, 14.0, 250.0, 18.0
_SQUARE = 8.0
_THINNEST, _THICKEST = 0.6, 4.2


def line_drawing(picked: Picked, *, heads: int, notes: tuple[str, ...] = ()) -> Layout:
    """Rows on the left, columns on the right, a line a weight: as wide and as opaque as it is.

    Colours are those of a model with `heads` heads. Where only some queries are shown, each key
    has a square a head, as opaque as the largest weight that it is given. `notes` stand below.
    """
    rows, columns = (tuple(map(shown, side)) for side in (picked.rows, picked.columns))
    notes = (*notes, f"Weights below {FAINTEST:.0%} are not drawn.")
    left, right = SIDES[picked.kind]
    squares = len(picked.heads) * _SQUARE + 6 if picked.queries is not None else 0.0
    sides = widest((*rows, left), _FONT), widest((*columns, right), _FONT) + squares
    top = _MARGIN + 30 + (24 if len(picked.heads) > 1 else 0) + 26
    bottom = 10 + 16 * len(notes) + _MARGIN
    length = max(len(rows), len(columns))
    wanted = max(
        sum(sides) + _GAP + 12,
        text_width(picked.title(), 16),
        widest(notes, 11),
        (34 * len(picked.heads) + 40 if len(picked.heads) > 1 else 0),
    )

    def draw(sheet: Sheet) -> None:
        axes = sheet.axes()
        _head_line(axes, sheet, picked, heads)
        ends = _MARGIN + sides[0] + 6, sheet.room.width - _MARGIN - sides[1] - 6
        height = sheet.room.height - top - bottom
        step = height / length
        queries = picked.shown_rows
        of_rows = _column(axes, sheet, rows, ends[0] - 6, top, step, right=True, lit=queries)
        of_columns = _column(axes, sheet, columns, ends[1] + 6 + squares, top, step)
        for text, x, side in ((left, ends[0] - 6, "right"), (right, ends[1] + 6 + squares, "left")):
            axes.text(
                *(x, top - 14, text),
                ha=side,
                va="center",
                color=QUIET,
                fontsize=sheet.points(11),
            )
        _lines(axes, sheet, picked, heads, (ends[0], of_rows), (ends[1], of_columns))
        if squares:
            _squares(axes, picked, heads, ends[1] + 6, of_columns)
        for number, note in enumerate(notes):
            y = sheet.room.height - bottom + 18 + 16 * number
            axes.text(_MARGIN, y, note, va="center", color=QUIET, fontsize=sheet.points(11))

    return Layout(
        natural=Size(wanted + 2 * _MARGIN, top + length * _ROW + bottom),
        texts=(*rows, *columns, *notes, picked.title()),
        draw=draw,
    )


def _head_line(axes: Axes, sheet: Sheet, picked: Picked, heads: int) -> None:
    """The title, and which colour is which head."""
    from matplotlib.patches import Rectangle

    axes.text(
        *(_MARGIN, _MARGIN + 8, picked.title()),
        va="center",
        color=INK,
        fontsize=sheet.points(16),
    )
    if len(picked.heads) < 2:
        return
    colours = head_colours(heads)
    for place, head in enumerate(picked.heads):
        x, y = _MARGIN + 34 * place, _MARGIN + 30
        axes.add_patch(Rectangle((x, y), 11, 11, color=colours[head - 1], linewidth=0))
        axes.text(*(x + 15, y + 6, str(head)), va="center", color=QUIET, fontsize=sheet.points(11))


def _column(
    axes: Axes,
    sheet: Sheet,
    labels: tuple[str, ...],
    x: float,
    top: float,
    step: float,
    *,
    right: bool = False,
    lit: tuple[int, ...] | None = None,
) -> list[float]:
    """Writes pieces below each other; the height of each. Those that are not `lit` are quiet."""
    heights = [top + step * (place + 0.5) for place in range(len(labels))]
    for place, (label, y) in enumerate(zip(labels, heights, strict=True)):
        axes.text(
            *(x, y, label),
            ha="right" if right else "left",
            va="center",
            color=INK if lit is None or place in lit else "#a7adba",
            fontsize=sheet.points(_FONT),
        )
    return heights


def _lines(
    axes: Axes,
    sheet: Sheet,
    picked: Picked,
    heads: int,
    left: tuple[float, list[float]],
    right: tuple[float, list[float]],
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb

    colours = np.array([to_rgb(colour) for colour in head_colours(heads)])
    rows = np.zeros(len(picked.rows), bool)
    rows[list(picked.shown_rows)] = True
    drawn = (picked.weights >= FAINTEST) & rows[None, :, None]
    head, row, column = np.nonzero(drawn)
    weights = picked.weights[drawn]
    # The strongest last, on top of the others.
    order = np.argsort(weights, kind="stable")
    head, row, column, weights = head[order], row[order], column[order], weights[order]
    ys, yt = np.array(left[1])[row], np.array(right[1])[column]
    xs, xt = (np.full(len(weights), side[0]) for side in (left, right))
    segments = np.stack([np.stack([xs, ys], -1), np.stack([xt, yt], -1)], axis=1)
    numbers = np.array([number - 1 for number in picked.heads])[head]
    inks = np.concatenate([colours[numbers], _opacity(weights)[:, None]], axis=-1)
    axes.add_collection(
        LineCollection(
            list(segments),
            colors=list(map(tuple, inks.tolist())),
            linewidths=[sheet.points(_THINNEST + (_THICKEST - _THINNEST) * w) for w in weights],
            capstyle="butt",
        ),
        autolim=False,
    )


def _squares(axes: Axes, picked: Picked, heads: int, x: float, heights: list[float]) -> None:
    from matplotlib.patches import Rectangle

    colours = head_colours(heads)
    given = picked.weights[:, list(picked.shown_rows)].max(axis=1)
    for place, head in enumerate(picked.heads):
        for y, weight in zip(heights, given[place], strict=True):
            if weight >= FAINTEST:
                axes.add_patch(
                    Rectangle(
                        (x + place * _SQUARE, y - _SQUARE),
                        *(_SQUARE, 2 * _SQUARE),
                        color=colours[head - 1],
                        alpha=float(_opacity(weight)),
                        linewidth=0,
                    )
                )


def _opacity(weights: Float32[np.ndarray, "*axes"]) -> Float32[np.ndarray, "*axes"]:
    """A line's opacity; rounding may leave a weight above 1."""
    return np.minimum(weights, np.float32(1))
