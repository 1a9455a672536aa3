"""The study's picture: a panel per corpus, BLEU against minutes, a line per contestant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.own_data.corpora import CORPORA, LONG
from benchmarks.own_data.record import Judged
from flaxformer_mt.colours import head_colours
from flaxformer_mt.figures import canvas
from flaxformer_mt.figures.canvas import Layout, Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "ours": "--config files, with the time given",
    "own_best": "best setting of the search, by dev",
    "best_peer": "best peer that has finished an epoch, by dev",
}
_ABREAST, _WIDTH, _HEIGHT, _LINE, _MARGIN = 3, 300.0, 220.0, 18.0, 36.0  # pixels


def chart(cells: Sequence[Judged]) -> Layout:
    """Of the cells that have been judged; what is missing leaves a gap."""
    down = -(-len(CORPORA) // _ABREAST)

    def draw(figure: Figure, pixel: float) -> None:
        for number, corpus in enumerate(CORPORA.values(), start=1):
            axes = figure.add_subplot(down, _ABREAST, number)
            of_corpus = [cell for cell in cells if cell.cell.corpus == corpus.name]
            _draw_panel(axes, pixel, of_corpus)
            family = corpus.name.rpartition("_")[0]
            axes.set_title(f"{family}, {corpus.pairs:,} pairs: test BLEU")
        canvas.legend(figure, pixel, list(LABELS.values()))

    height = down * _HEIGHT + len(LABELS) * _LINE + _MARGIN
    return Layout(natural=Size(_ABREAST * _WIDTH, height), draw=draw)


def _draw_panel(axes: Axes, pixel: float, cells: Sequence[Judged]) -> None:
    for name, colour in zip(LABELS, head_colours(len(LABELS)), strict=True):
        points = [
            (cell.cell.minutes, cell.scores[name].bleu) for cell in cells if name in cell.scores
        ]
        axes.plot(
            [minutes for minutes, _ in points],
            [bleu for _, bleu in points],
            color=colour,
            linewidth=1.8 * pixel,
            marker="o",
            markersize=4 * pixel,
        )
    axes.set_xscale("log")
    axes.set_xlim(LONG[0] * 0.8, LONG[-1] * 1.25)
    axes.set_xticks(LONG, [str(minutes) for minutes in LONG])
    axes.minorticks_off()
    axes.set_xlabel("minutes of two cores")
