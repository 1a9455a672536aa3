"""Attention as lines between pieces, as in the paper's figures 3 to 5, and as heat maps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flaxformer_mt.figures.canvas import QUIET, Layout, Size, head_colours, widest
from flaxformer_mt.figures.maps import SIDES, Picked, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAINTEST = 0.01  # weights below are not drawn: nobody would see them
_NOTE = f"Weights below {FAINTEST:.0%} are not drawn."
_ROW, _FONT, _GAP, _MARGIN = 21.0, 14.0, 250.0, 18.0  # pixels
_SQUARE = 8.0
_THICKEST = 4.2
_LANES = 0.8  # of a row's height is shared by its heads' lines
_UNLIT = "#a7adba"
_BETWEEN = 26.0
_ABREAST = 4  # maps at most
_LIGHT, _DARK = "#fbf6ec", "#5b2d00"


def line_drawing(picked: Picked, *, heads: int) -> Layout:
    """Rows on the left, columns on the right, a line per weight, as wide and opaque as the weight.

    Each picked head has a lane, so that lines of two heads between the same pieces are side by
    side. Colours are those of a model with `heads` heads. If only some queries are shown, each key
    has a square per head, as opaque as its largest weight.
    """
    # The headings of both sides are labels as well, above the first.
    left, right = (
        [heading, *map(shown, side)]
        for heading, side in zip(SIDES[picked.kind], (picked.rows, picked.columns), strict=True)
    )
    title = picked.title()
    squares = 0.0 if picked.queries is None else len(picked.heads) * _SQUARE + 6
    wanted = max(
        widest(left, _FONT) + _GAP + squares + widest(right, _FONT) + 12,
        widest([title], 16),
        34 * len(picked.heads) + 40,
    )
    length = max(len(left), len(right))

    def draw(figure: Figure, pixel: float) -> None:
        from matplotlib.collections import LineCollection
        from matplotlib.colors import to_rgba
        from matplotlib.patches import Patch

        colours = [head_colours(heads)[head - 1] for head in picked.heads]
        axes = figure.add_subplot(xlim=(0, _GAP + squares), ylim=(length - 1.5, -1.5))
        axes.xaxis.set_visible(False)
        other = axes.secondary_yaxis("right")
        for side, labels in ((axes, left), (other, right)):
            side.grid(visible=False)
            side.spines[:].set_visible(False)
            side.set_yticks(range(-1, len(labels) - 1), labels)
            side.tick_params(left=False, right=False, labelsize=_FONT * pixel, labelcolor="black")
            side.get_yticklabels()[0].set(color=QUIET, fontsize="small")
        for place, label in enumerate(axes.get_yticklabels()[1:]):
            if place not in picked.shown_rows:
                label.set_color(_UNLIT)

        weights = picked.weights[:, list(picked.shown_rows)]
        lane = _LANES / len(picked.heads)  # in rows
        # The strongest last, on top of the others.
        order = np.argsort(weights, axis=None, kind="stable")
        segments, inks, widths = [], [], []
        for head, row, column in zip(*np.unravel_index(order, weights.shape), strict=True):
            weight = min(float(weights[head, row, column]), 1.0)  # rounding may leave more
            if weight >= FAINTEST:
                start, off = picked.shown_rows[row], (head - (len(colours) - 1) / 2) * lane
                segments.append([(0, start + off), (_GAP, column + off)])
                inks.append(to_rgba(colours[head], weight))
                # Lanes are level; steep lines in them are closer to each other.
                room = lane * _ROW * _GAP / math.hypot(_GAP, (column - start) * _ROW)
                widths.append(min(_THICKEST, room) * (1 + 6 * weight) / 7 * pixel)
        axes.add_collection(
            LineCollection(segments, colors=inks, linewidths=widths, capstyle="butt")
        )
        if squares:
            for place, (colour, given) in enumerate(zip(colours, weights.max(axis=1), strict=True)):
                shades = [to_rgba(colour, min(each, 1.0) * (each >= FAINTEST)) for each in given]
                start = _GAP + 4 + place * _SQUARE
                axes.barh(range(len(given)), _SQUARE, left=start, height=0.76, color=shades)
        figure.legend(
            [Patch(color=colour) for colour in colours],
            list(map(str, picked.heads)),
            title=title,
            title_fontsize=16 * pixel,
            alignment="left",
            loc="outside upper left",
            ncols=len(picked.heads),
            handlelength=1,
            columnspacing=1,
        )
        figure.supxlabel(_NOTE, x=0.02, ha="left", fontsize="small", color=QUIET)

    return Layout(natural=Size(wanted + 2 * _MARGIN, length * _ROW + 110), draw=draw)


def heat_maps(picked: Picked) -> Layout:
    """One map per head; queries go down, keys across; only selected rows.

    The colour follows the root of the weight, since most weights are small and none should vanish.
    """
    rows = [shown(picked.rows[row]) for row in picked.shown_rows]
    columns = [shown(piece) for piece in picked.columns]
    weights = picked.weights[:, list(picked.shown_rows)]
    note = f"Rows: {SIDES[picked.kind][0]}; columns: {SIDES[picked.kind][1]}."
    cell = min(18.0, max(9.0, 560.0 / max(len(rows), len(columns))))
    font = min(12.0, cell * 0.82)
    abreast = min(_ABREAST, math.ceil(len(picked.heads) ** 0.5))
    down = math.ceil(len(picked.heads) / abreast)
    map_width = widest(rows, font) + cell * len(columns) + _BETWEEN
    map_height = widest(columns, font) + cell * len(rows) + _BETWEEN + 20
    least = max(widest([picked.title()], 16), widest([note], 11), 240.0)
    natural = Size(max(abreast * map_width, least) + 2 * _MARGIN, down * map_height + 130)

    def draw(figure: Figure, pixel: float) -> None:
        from matplotlib.colors import LinearSegmentedColormap, PowerNorm

        colours = LinearSegmentedColormap.from_list("weights", [_LIGHT, _DARK])
        scale = PowerNorm(0.5, vmin=0.0, vmax=1.0)
        for number, (head, values) in enumerate(zip(picked.heads, weights, strict=True), start=1):
            axes = figure.add_subplot(down, abreast, number)
            image = axes.imshow(values, cmap=colours, norm=scale, interpolation="none")
            axes.set_title(f"head {head}", color=QUIET)
            axes.set_xticks(range(len(columns)), columns, rotation=90)
            axes.set_yticks(range(len(rows)), rows)
            axes.tick_params(length=0, labelsize=font * pixel, labelcolor="black")
            axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False)
            axes.spines[:].set_visible(False)
            axes.grid(visible=False)
        room = figure.get_figwidth() * 72 / pixel
        bar = figure.colorbar(
            image,
            ax=figure.axes,
            location="bottom",
            ticks=[0.0, 0.1, 0.25, 0.5, 1.0],
            format="%g",
            shrink=200 / room,
            aspect=16,
            anchor=(0.0, 0.5),
        )
        bar.outline.set_visible(False)
        left = _MARGIN / room
        figure.suptitle(picked.title(), x=left, ha="left", fontsize=16 * pixel)
        figure.supxlabel(note, x=left, ha="left", fontsize=11 * pixel, color=QUIET)

    return Layout(natural=natural, draw=draw)
