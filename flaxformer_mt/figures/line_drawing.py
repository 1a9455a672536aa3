"""Attention as lines from each piece to what it looks at, as in the paper's figures 3 to 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flaxformer_mt.figures.canvas import (
    INK,
    QUIET,
    Layout,
    Sheet,
    Size,
    head_colours,
    text_width,
    widest,
)
from flaxformer_mt.figures.maps import SIDES, Picked, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAINTEST = 0.01  # weights below are not drawn: nobody would see them
_NOTE = f"Weights below {FAINTEST:.0%} are not drawn."
_ROW, _FONT, _GAP, _MARGIN = 21.0, 14.0, 250.0, 18.0
_SQUARE = 8.0
_THINNEST, _THICKEST = 0.6, 4.2
_UNLIT = "#a7adba"


def line_drawing(picked: Picked, *, heads: int) -> Layout:
    """Rows on the left, columns on the right, a line a weight: as wide and as opaque as it is.

    Colours are those of a model with `heads` heads. Where only some queries are shown, each key
    has a square a head, as opaque as the largest weight that it is given.
    """
    rows, columns = (tuple(map(shown, side)) for side in (picked.rows, picked.columns))
    left, right = SIDES[picked.kind]
    several = len(picked.heads) > 1
    squares = len(picked.heads) * _SQUARE + 6 if picked.queries is not None else 0.0
    widths = widest((*rows, left), _FONT), widest((*columns, right), _FONT) + squares
    top, bottom = _MARGIN + (80 if several else 56), 26 + _MARGIN
    length = max(len(rows), len(columns))
    wanted = max(
        sum(widths) + _GAP + 12,
        text_width(picked.title(), 16),
        text_width(_NOTE, 11),
        34 * len(picked.heads) + 40 if several else 0,
    )

    def draw(sheet: Sheet) -> None:
        axes = sheet.axes()
        colours = head_colours(heads)
        _write(axes, sheet, _MARGIN, _MARGIN + 8, picked.title(), 16, INK)
        if several:
            for place, head in enumerate(picked.heads):
                x, y = _MARGIN + 34 * place, _MARGIN + 30
                _box(axes, x, y, 11, 11, colours[head - 1])
                _write(axes, sheet, x + 15, y + 6, str(head), 11)
        start, end = _MARGIN + widths[0] + 6, sheet.room.width - _MARGIN - widths[1] - 6
        step = (sheet.room.height - top - bottom) / length
        heights = top + step * (np.arange(length) + 0.5)
        _write(axes, sheet, start - 6, top - 14, left, 11, side="right")
        _write(axes, sheet, end + 6 + squares, top - 14, right, 11)
        for place, label in enumerate(rows):
            ink = INK if place in picked.shown_rows else _UNLIT
            _write(axes, sheet, start - 6, heights[place], label, _FONT, ink, side="right")
        for place, label in enumerate(columns):
            _write(axes, sheet, end + 6 + squares, heights[place], label, _FONT, INK)
        _lines(axes, sheet, picked, colours, start, end, heights)
        if squares:
            _squares(axes, picked, colours, end + 6, heights)
        _write(axes, sheet, _MARGIN, sheet.room.height - bottom + 18, _NOTE, 11)

    return Layout(natural=Size(wanted + 2 * _MARGIN, top + length * _ROW + bottom), draw=draw)


def _write(
    axes: Axes,
    sheet: Sheet,
    x: float,
    y: float,
    text: str,
    pixels: float,
    colour: str = QUIET,
    *,
    side: str = "left",
) -> None:
    axes.text(x, y, text, ha=side, va="center", color=colour, fontsize=sheet.points(pixels))


def _box(
    axes: Axes, x: float, y: float, width: float, height: float, colour: str, alpha: float = 1.0
) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y), width, height, color=colour, alpha=alpha, linewidth=0))


def _lines(
    axes: Axes,
    sheet: Sheet,
    picked: Picked,
    colours: tuple[str, ...],
    start: float,
    end: float,
    heights: np.ndarray,
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    asked = np.isin(np.arange(len(picked.rows)), picked.shown_rows)
    drawn = (picked.weights >= FAINTEST) & asked[None, :, None]
    places = np.argwhere(drawn)
    weights = picked.weights[drawn]
    # The strongest last, on top of the others.
    order = np.argsort(weights, kind="stable")
    segments, inks, widths = [], [], []
    for (head, row, column), weight in zip(places[order], weights[order], strict=True):
        segments.append([(start, heights[row]), (end, heights[column])])
        inks.append(to_rgba(colours[picked.heads[head] - 1], _opacity(weight)))
        widths.append(sheet.points(_THINNEST + (_THICKEST - _THINNEST) * weight))
    axes.add_collection(
        LineCollection(segments, colors=inks, linewidths=widths, capstyle="butt"), autolim=False
    )


def _squares(
    axes: Axes, picked: Picked, colours: tuple[str, ...], x: float, heights: np.ndarray
) -> None:
    given = picked.weights[:, list(picked.shown_rows)].max(axis=1)
    for place, head in enumerate(picked.heads):
        for y, weight in zip(heights, given[place], strict=False):
            if weight >= FAINTEST:
                at = x + place * _SQUARE, y - _SQUARE
                _box(axes, *at, _SQUARE, 2 * _SQUARE, colours[head - 1], _opacity(weight))


def _opacity(weight: float) -> float:
    """Rounding may leave a weight above 1."""
    return min(float(weight), 1.0)
