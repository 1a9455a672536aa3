"""Attention as heat maps: a map a head, a cell a weight."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flaxformer_mt.figures.canvas import QUIET, Layout, Size, widest
from flaxformer_mt.figures.maps import SIDES, Picked, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARGIN, _BETWEEN = 24.0, 26.0
_ABREAST = 4  # maps at most
_LIGHT, _DARK = "#fbf6ec", "#5b2d00"


def heat_maps(picked: Picked) -> Layout:
    """One map a head; queries go down, keys across. The colour follows the root of the weight.

    Most weights are small, and none should vanish. Rows that are not asked for are left out.
    """
    rows = [shown(picked.rows[row]) for row in picked.shown_rows]
    columns = [shown(piece) for piece in picked.columns]
    weights = picked.weights[:, list(picked.shown_rows)]
    note = f"Down: {SIDES[picked.kind][0]}; across: {SIDES[picked.kind][1]}."
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
