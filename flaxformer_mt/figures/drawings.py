"""Pictures of attention for matplotlib: lines and heat maps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flaxformer_mt.attention.weights import SIDES, Picked, shown
from flaxformer_mt.colours import head_colours
from flaxformer_mt.figures.canvas import QUIET, Layout, Size, widest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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


def line_drawing(picked: Picked) -> Layout:
    """Rows on the left, columns on the right, a line per weight, as wide and opaque as the weight.

    Each picked head has a lane, so that lines of two heads between the same pieces are side by
    side. If only some queries are shown, each key has a square per head, as opaque as its largest
    weight.
    """
    left, right = _side_labels(picked)
    squares = _squares_width(picked)
    width = max(
        widest(left, _FONT) + _GAP + squares + widest(right, _FONT) + 12,
        widest([picked.title()], 16),
        34 * len(picked.heads) + 40,
    )
    length = max(len(left), len(right))

    def draw(figure: Figure, pixel: float) -> None:
        axes = figure.add_subplot(xlim=(0, _GAP + squares), ylim=(length - 1.5, -1.5))
        _label_sides(axes, picked, pixel)
        _draw_lines(axes, picked, pixel)
        if squares:
            _draw_squares(axes, picked)
        _draw_legend(figure, picked, pixel)

    return Layout(natural=Size(width + 2 * _MARGIN, length * _ROW + 110), draw=draw)


def _side_labels(picked: Picked) -> tuple[list[str], list[str]]:
    """Of the rows and of the columns; the headings of both are labels as well, above the first."""
    rows_heading, columns_heading = SIDES[picked.kind]
    rows = [rows_heading, *map(shown, picked.rows)]
    columns = [columns_heading, *map(shown, picked.columns)]
    return rows, columns


def _squares_width(picked: Picked) -> float:
    """The width of the squares beside the keys: 0 without them, when all queries are shown."""
    return 0.0 if picked.queries is None else len(picked.heads) * _SQUARE + 6


def _colours(picked: Picked) -> list[str]:
    all_heads = head_colours(picked.of_heads)
    return [all_heads[head - 1] for head in picked.heads]


def _label_sides(axes: Axes, picked: Picked, pixel: float) -> None:
    axes.xaxis.set_visible(False)
    right_axis = axes.secondary_yaxis("right")
    for side, labels in zip((axes, right_axis), _side_labels(picked), strict=True):
        side.grid(visible=False)
        side.spines[:].set_visible(False)
        side.set_yticks(range(-1, len(labels) - 1), labels)
        side.tick_params(left=False, right=False, labelsize=_FONT * pixel, labelcolor="black")
        side.get_yticklabels()[0].set(color=QUIET, fontsize="small")
    for place, label in enumerate(axes.get_yticklabels()[1:]):
        if place not in picked.shown_rows:
            label.set_color(_UNLIT)


def _draw_lines(axes: Axes, picked: Picked, pixel: float) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    colours = _colours(picked)
    lane = _LANES / len(picked.heads)  # in rows
    weights = picked.weights[:, list(picked.shown_rows)]  # [heads, shown rows, columns]
    # The strongest last, on top of the others.
    order = np.argsort(weights, axis=None, kind="stable")
    segments, inks, widths = [], [], []
    for head, row, column in zip(*np.unravel_index(order, weights.shape), strict=True):
        weight = min(float(weights[head, row, column]), 1.0)  # rounding may leave more
        if weight < FAINTEST:
            continue
        start = picked.shown_rows[row]
        offset = (head - (len(colours) - 1) / 2) * lane
        segments.append([(0, start + offset), (_GAP, column + offset)])
        inks.append(to_rgba(colours[head], weight))
        # Lanes are level; steep lines in them are closer to each other.
        room = lane * _ROW * _GAP / math.hypot(_GAP, (column - start) * _ROW)
        widths.append(min(_THICKEST, room) * (1 + 6 * weight) / 7 * pixel)
    axes.add_collection(LineCollection(segments, colors=inks, linewidths=widths, capstyle="butt"))


def _draw_squares(axes: Axes, picked: Picked) -> None:
    """One per head beside each key, as opaque as the largest weight of the shown queries."""
    from matplotlib.colors import to_rgba

    weights = picked.weights[:, list(picked.shown_rows)].max(axis=1)  # [heads, columns]
    for place, (colour, largest) in enumerate(zip(_colours(picked), weights, strict=True)):
        shades = [to_rgba(colour, min(weight, 1.0) * (weight >= FAINTEST)) for weight in largest]
        left = _GAP + 4 + place * _SQUARE
        axes.barh(range(len(largest)), _SQUARE, left=left, height=0.76, color=shades)


def _draw_legend(figure: Figure, picked: Picked, pixel: float) -> None:
    from matplotlib.patches import Patch

    figure.legend(
        [Patch(color=colour) for colour in _colours(picked)],
        list(map(str, picked.heads)),
        title=picked.title(),
        title_fontsize=16 * pixel,
        alignment="left",
        loc="outside upper left",
        ncols=len(picked.heads),
        handlelength=1,
        columnspacing=1,
    )
    figure.supxlabel(_NOTE, x=0.02, ha="left", fontsize="small", color=QUIET)


def heat_maps(picked: Picked) -> Layout:
    """One map per head; queries go down, keys across. The colour follows the root of the weight,
    since most weights are small and none should vanish."""
    rows = [shown(picked.rows[row]) for row in picked.shown_rows]
    columns = [*map(shown, picked.columns)]
    weights = picked.weights[:, list(picked.shown_rows)]  # [heads, shown rows, columns]
    note = f"Rows: {SIDES[picked.kind][0]}; columns: {SIDES[picked.kind][1]}."
    cell = min(18.0, max(9.0, 560.0 / max(len(rows), len(columns))))
    font = min(12.0, cell * 0.82)
    abreast = min(_ABREAST, math.ceil(len(picked.heads) ** 0.5))
    down = math.ceil(len(picked.heads) / abreast)
    map_width = widest(rows, font) + cell * len(columns) + _BETWEEN
    map_height = widest(columns, font) + cell * len(rows) + _BETWEEN + 20
    text_width = max(widest([picked.title()], 16), widest([note], 11), 240.0)
    natural = Size(max(abreast * map_width, text_width) + 2 * _MARGIN, down * map_height + 130)

    def draw(figure: Figure, pixel: float) -> None:
        from matplotlib.colors import LinearSegmentedColormap, PowerNorm

        colours = LinearSegmentedColormap.from_list("weights", [_LIGHT, _DARK])
        scale = PowerNorm(0.5, vmin=0.0, vmax=1.0)
        maps = zip(picked.heads, weights, strict=True)
        for number, (head, head_weights) in enumerate(maps, start=1):
            axes = figure.add_subplot(down, abreast, number)
            image = axes.imshow(head_weights, cmap=colours, norm=scale, interpolation="none")
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


STYLES = {"lines": line_drawing, "heat": heat_maps}
