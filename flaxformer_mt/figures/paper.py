"""Two formulas of the paper as pictures, drawn by the functions that train and translate."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from flaxformer_mt.config import ScheduleConfig
from flaxformer_mt.figures.axes import caption, panel_axes, plain_numbers, write
from flaxformer_mt.figures.canvas import QUIET, Layout, Sheet, Size
from flaxformer_mt.figures.colours import head_colours
from flaxformer_mt.figures.errors import FigureError
from flaxformer_mt.model.embedding import sinusoids
from flaxformer_mt.training.schedule import learning_rate

_MARGIN, _LEFT, _ABOVE, _BELOW = 18.0, 62.0, 34.0, 46.0
_POINTS = 1000


def schedule(warmups: Sequence[int], *, d_model: int, steps: int) -> Layout:
    """The learning rate of section 5.3 over `steps` steps, a curve a number of warm-up steps."""
    at = np.unique(np.linspace(1, steps, min(steps, _POINTS)).astype(np.int64))
    title = f"learning rate, d_model {d_model}: d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)"
    labels = [f"{warmup:,} warm-up steps" for warmup in warmups]
    natural = Size(640.0, 320.0 + 18 * len(warmups))

    def draw(sheet: Sheet) -> None:
        whole = sheet.axes()
        foot = 18 * len(warmups) + _MARGIN
        size = Size(
            sheet.room.width - _LEFT - 2 * _MARGIN,
            sheet.room.height - _ABOVE - _BELOW - _MARGIN - foot,
        )
        axes = panel_axes(sheet, _MARGIN + _LEFT, _MARGIN + _ABOVE, size)
        write(whole, sheet, _MARGIN, _MARGIN + 8, title, 13)
        y = sheet.room.height - foot + 4
        for warmup, label, colour in zip(warmups, labels, head_colours(len(warmups)), strict=True):
            config = ScheduleConfig(kind="paper", warmup_steps=warmup)
            # The schedule counts updates already made: step 1 has none before it.
            rates = np.asarray(jax.vmap(learning_rate(config, d_model))(at - 1))
            axes.plot(at, rates, color=colour, linewidth=sheet.points(1.8))
            whole.plot([_MARGIN, _MARGIN + 20], [y, y], color=colour, lw=sheet.points(3))
            write(whole, sheet, _MARGIN + 28, y, label, 12)
            y += 18
        plain_numbers(axes)
        axes.set_xlim(0, steps)
        axes.set_ylim(bottom=0)
        caption(axes, sheet, "steps")

    return Layout(natural=natural, texts=(title, *labels), draw=draw)


def positions(length: int, *, d_model: int) -> Layout:
    """The sinusoids of section 3.5: their values, and how alike the positions are by them.

    The second panel has the dot product of each two positions over that of a position with itself:
    it depends on their distance alone. Raises FigureError for an odd `d_model`.
    """
    if d_model % 2:
        raise FigureError(f"d_model {d_model} is odd: sines and cosines come in pairs")
    table = sinusoids(length, d_model)
    alike = table @ table.T / (d_model / 2)
    titles = (f"sinusoids, d_model {d_model}", "likeness of two positions")
    names = (("dimension", "position"), ("position", "position"))

    def draw(sheet: Sheet) -> None:
        whole = sheet.axes()
        wide = (sheet.room.width - 2 * _MARGIN) / 2
        for number, (values, title, (across, down)) in enumerate(
            zip((table, alike), titles, names, strict=True)
        ):
            x, y = _MARGIN + number * wide + _LEFT, _MARGIN + _ABOVE
            size = Size(wide - _LEFT - 12, sheet.room.height - _ABOVE - _BELOW - 2 * _MARGIN)
            axes = panel_axes(sheet, x, y, size)
            axes.grid(visible=False)
            axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="none")
            plain_numbers(axes)
            caption(axes, sheet, across)
            axes.set_ylabel(down, color=QUIET, fontsize=sheet.points(10))
            write(whole, sheet, x, y - 14, f"{title} (blue −1, white 0, red 1)", 12)

    return Layout(natural=Size(900.0, 420.0), texts=titles, draw=draw)
