"""Two formulas of the paper as pictures, drawn by the functions that train and translate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from flaxformer_mt.colours import head_colours
from flaxformer_mt.config import ScheduleConfig
from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.canvas import Layout, Size, legend, plain_numbers
from flaxformer_mt.model.embedding import sinusoids
from flaxformer_mt.training.optimizer import learning_rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS = 1000


def schedule(warmups: Sequence[int], *, d_model: int, steps: int) -> Layout:
    """The learning rate of section 5.3 over `steps` steps, one curve per warm-up."""
    points = np.unique(np.linspace(1, steps, min(steps, _POINTS)).astype(np.int64))

    def draw(figure: Figure, pixel: float) -> None:
        axes = figure.add_subplot()
        for warmup, colour in zip(warmups, head_colours(len(warmups)), strict=True):
            config = ScheduleConfig(kind="paper", warmup_steps=warmup)
            # The schedule counts updates already made: step 1 has none before it.
            rates = np.asarray(jax.vmap(learning_rate(config, d_model))(points - 1))
            axes.plot(points, rates, color=colour, linewidth=1.8 * pixel)
        formula = "d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)"
        axes.set_title(f"learning rate, d_model {d_model}: {formula}")
        axes.set_xlabel("steps")
        plain_numbers(axes)
        axes.set_xlim(0, steps)
        axes.set_ylim(bottom=0)
        legend(figure, pixel, [f"{warmup:,} warm-up steps" for warmup in warmups])

    return Layout(natural=Size(640.0, 320.0 + 18 * len(warmups)), draw=draw)


def positions(length: int, *, d_model: int) -> Layout:
    """The sinusoids of section 3.5, and the dot product of each two positions relative to a
    position's with itself. Raises FigureError for an odd `d_model`."""
    if d_model % 2:
        raise FigureError(f"d_model {d_model} is odd: sines and cosines come in pairs")
    table = sinusoids(length, d_model)
    pictures = (
        (table, f"sinusoids, d_model {d_model}", "dimension"),
        (table @ table.T / (d_model / 2), "similarity of two positions", "position"),
    )

    def draw(figure: Figure, pixel: float) -> None:
        for number, (matrix, title, across) in enumerate(pictures, start=1):
            axes = figure.add_subplot(1, 2, number)
            axes.grid(visible=False)
            axes.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="none")
            axes.set_title(f"{title} (blue −1, white 0, red 1)")
            axes.set_xlabel(across)
            axes.set_ylabel("position")
            plain_numbers(axes)

    return Layout(natural=Size(900.0, 420.0), draw=draw)
