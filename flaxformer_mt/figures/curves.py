"""Training curves of runs side by side: a panel a quantity, a colour a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from flaxformer_mt.figures.axes import caption, compact, panel_axes, plain_numbers, write
from flaxformer_mt.figures.canvas import QUIET, Layout, Sheet, Size, widest
from flaxformer_mt.figures.colours import head_colours
from flaxformer_mt.figures.panels import Panel, without
from flaxformer_mt.figures.runs import AXIS_NAMES, Axis, RunLog

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARGIN, _WIDTH, _HEIGHT = 18.0, 400.0, 240.0
_LEFT, _ABOVE, _BELOW = 62.0, 28.0, 46.0  # of a panel, for its numbers and its title
_ABREAST = 3
_LINE = 18.0


def curves(runs: Sequence[RunLog], panels: Sequence[Panel], *, axis: Axis = "steps") -> Layout:
    """The picture. Below the panels stand the runs, and what is to be known of their curves."""
    abreast = min(_ABREAST, math.ceil(len(panels) ** 0.5))
    down = math.ceil(len(panels) / abreast)
    notes = all_notes(runs, panels)
    legend = [run.label() for run in runs]
    foot = _LINE * (len(legend) + len(notes)) + _MARGIN + 10
    wanted = max(abreast * _WIDTH, widest(notes, 11), widest(legend, 12) + 30)
    natural = Size(wanted + 2 * _MARGIN, down * _HEIGHT + foot + _MARGIN)
    colours = head_colours(len(runs))

    def draw(sheet: Sheet) -> None:
        whole = sheet.axes()
        wide = (sheet.room.width - 2 * _MARGIN) / abreast
        high = (sheet.room.height - foot - _MARGIN) / down
        for number, panel in enumerate(panels):
            x = _MARGIN + (number % abreast) * wide + _LEFT
            y = _MARGIN + (number // abreast) * high + _ABOVE
            size = Size(wide - _LEFT - 12, high - _ABOVE - _BELOW)
            axes = panel_axes(sheet, x, y, size)
            _draw_panel(axes, sheet, runs, panel, axis)
            write(whole, sheet, x, y - 12, panel.title, 12)
        y = sheet.room.height - foot + 14
        for label, colour in zip(legend, colours, strict=True):
            whole.plot([_MARGIN, _MARGIN + 20], [y, y], color=colour, lw=sheet.points(3))
            write(whole, sheet, _MARGIN + 28, y, label, 12)
            y += _LINE
        for note in notes:
            write(whole, sheet, _MARGIN, y, note, 11, colour=QUIET)
            y += _LINE

    texts = (*legend, *notes, *(panel.title for panel in panels), AXIS_NAMES[axis])
    return Layout(natural=natural, texts=texts, draw=draw)


def all_notes(runs: Sequence[RunLog], panels: Sequence[Panel]) -> list[str]:
    """What the curves do not show, a line each."""
    notes = [f"{run.name}: {note}" for run in runs for note in run.notes]
    for panel in panels:
        if missing := without(panel, runs):
            notes.append(f"No {panel.name} was reported by {', '.join(missing)}.")
    return notes


def _draw_panel(axes: Axes, sheet: Sheet, runs: Sequence[RunLog], panel: Panel, axis: Axis) -> None:
    for run, colour in zip(runs, head_colours(len(runs)), strict=True):
        for kind in panel.kinds:
            points = run.series[kind].line(axis, panel.name)
            dots = kind == "valid"
            alone = _alone(points)
            axes.plot(
                points[:, 0],
                points[:, 1],
                color=colour,
                linewidth=sheet.points(1.0 if dots else 1.8),
                marker="o",
                markersize=sheet.points(5 if dots else 2.5),
                markevery=slice(None) if dots else alone,
                solid_joinstyle="round",
            )
    plain_numbers(axes)
    if panel.logarithmic:
        axes.set_yscale("log")
        _plain_logarithms(axes)
    axes.set_xlim(left=0)
    caption(axes, sheet, AXIS_NAMES[axis].partition(" (")[0])


def _alone(points: Float64[np.ndarray, "points two"]) -> list[bool]:
    """Which points have no neighbour to draw a line to."""
    there = np.isfinite(points).all(axis=-1)
    padded = np.pad(there, 1)
    found: list[bool] = (there & ~padded[:-2] & ~padded[2:]).tolist()
    return found


def _plain_logarithms(axes: Axes) -> None:
    """Ticks at 1, 2, 5, 10, ... as plain numbers, among those that the curves reach."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = axes.get_ylim()
    marks = [
        digit * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for digit in (1, 2, 5)
    ]
    within = [mark for mark in marks if low <= mark <= high]
    if len(within) > 7:
        within = [mark for mark in within if np.isclose(math.log10(mark) % 1, 0)]
    axes.yaxis.set_major_locator(FixedLocator(within))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
