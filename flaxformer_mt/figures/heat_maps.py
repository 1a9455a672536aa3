"""Attention as heat maps: a map a head, a cell a weight."""

from __future__ import annotations

import math

import numpy as np

from flaxformer_mt.figures.canvas import INK, QUIET, Layout, Sheet, Size, text_width, widest
from flaxformer_mt.figures.labels import shown
from flaxformer_mt.figures.maps import SIDES, Picked

_MARGIN, _BETWEEN = 18.0, 26.0
_ABREAST = 4  # maps at most
_LIGHT, _DARK = "#fbf6ec", "#5b2d00"


def heat_maps(picked: Picked, *, notes: tuple[str, ...] = ()) -> Layout:
    """One map a head; queries go down, keys across. The colour follows the root of the weight.

    Most weights are small, and none should vanish. Rows that are not asked for are left out.
    """
    rows = [shown(picked.rows[row]) for row in picked.shown_rows]
    columns = [shown(piece) for piece in picked.columns]
    weights = picked.weights[:, list(picked.shown_rows)]
    notes = (*notes, f"Down: {SIDES[picked.kind][0]}; across: {SIDES[picked.kind][1]}.")
    cell = min(18.0, max(9.0, 560.0 / max(len(rows), len(columns))))
    font = min(12.0, cell * 0.82)
    abreast = min(_ABREAST, math.ceil(len(picked.heads) ** 0.5))
    left, above = widest(rows, font) + 8, widest(columns, font) + 8
    one = Size(left + cell * len(columns), 20 + above + cell * len(rows))
    down = math.ceil(len(picked.heads) / abreast)
    top, bottom = _MARGIN + 34, 44 + 16 * len(notes) + _MARGIN
    width = max(
        abreast * one.width + (abreast - 1) * _BETWEEN,
        text_width(picked.title(), 16),
        widest(notes, 11),
        240.0,
    )
    natural = Size(2 * _MARGIN + width, top + down * (one.height + _BETWEEN) - _BETWEEN + bottom)

    def draw(sheet: Sheet) -> None:
        from matplotlib.colors import LinearSegmentedColormap, PowerNorm

        axes = sheet.axes()
        colours = LinearSegmentedColormap.from_list("weights", [_LIGHT, _DARK])
        scale = PowerNorm(0.5, vmin=0.0, vmax=1.0)

        def write(x: float, y: float, text: str, pixels: float, *, quiet: bool = True) -> None:
            colour = QUIET if quiet else INK
            axes.text(x, y, text, va="center", color=colour, fontsize=sheet.points(pixels))

        # What the sheet has more than it needs goes between the maps.
        aside = (sheet.room.width - natural.width) / max(abreast - 1, 1)
        below = (sheet.room.height - natural.height) / max(down - 1, 1)
        write(_MARGIN, _MARGIN + 8, picked.title(), 16, quiet=False)
        for number, head in enumerate(picked.heads):
            x = _MARGIN + left + (number % abreast) * (one.width + _BETWEEN + aside)
            y = top + 20 + above + (number // abreast) * (one.height + _BETWEEN + below)
            write(x, y - above - 10, f"head {head}", 12)
            axes.imshow(
                weights[number],
                extent=(x, x + cell * len(columns), y + cell * len(rows), y),
                cmap=colours,
                norm=scale,
                interpolation="none",
                aspect="auto",
            )
            for place, label in enumerate(rows):
                axes.text(
                    *(x - 5, y + cell * (place + 0.5), label),
                    ha="right",
                    va="center",
                    color=INK,
                    fontsize=sheet.points(font),
                )
            for place, label in enumerate(columns):
                axes.text(
                    *(x + cell * (place + 0.5), y - 5, label),
                    ha="center",
                    va="bottom",
                    rotation=90,
                    color=INK,
                    fontsize=sheet.points(font),
                )
        y = sheet.room.height - bottom + 16
        axes.imshow(
            np.linspace(0, 1, 256)[None, :],
            extent=(_MARGIN, _MARGIN + 200, y + 12, y),
            cmap=colours,
            norm=scale,
            interpolation="none",
            aspect="auto",
        )
        for share in (0.0, 0.25, 0.5, 1.0):
            axes.text(
                *(_MARGIN + 200 * share, y + 21, f"{share:g}"),
                ha="center",
                va="center",
                color=QUIET,
                fontsize=sheet.points(10),
            )
        for number, note in enumerate(notes):
            write(_MARGIN, y + 44 + 16 * number, note, 11)
        # Images move the limits of their axes.
        axes.set_xlim(0, sheet.room.width)
        axes.set_ylim(sheet.room.height, 0)

    return Layout(natural=natural, texts=(*rows, *columns, *notes, picked.title()), draw=draw)
