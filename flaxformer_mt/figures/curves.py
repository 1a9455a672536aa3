"""Training curves side by side, as a picture and a page: one panel per quantity."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from flaxformer_mt.figures import canvas
from flaxformer_mt.figures.canvas import Layout, Size
from flaxformer_mt.figures.runs import AXIS_NAMES, Axis, Kind, Panel, RunLog
from flaxformer_mt.pages import asset, standalone, table, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT, _LINE, _MARGIN = 412.0, 240.0, 18.0, 36.0  # pixels
_ABREAST = 3
_BEST = {"loss": min, "perplexity": min, "bleu": max, "chrf": max}


def curves(runs: Sequence[RunLog], panels: Sequence[Panel], *, axis: Axis = "steps") -> Layout:
    """The picture, with a colour per run. The runs and `all_notes` are below the panels."""
    abreast = min(_ABREAST, math.ceil(len(panels) ** 0.5))
    down = math.ceil(len(panels) / abreast)
    labels, notes = [run.label() for run in runs], all_notes(runs, panels)
    wanted = max(abreast * _WIDTH, canvas.widest([*labels, *notes], 12) + 2 * _MARGIN)
    lines = len(labels) + len(notes)

    def draw(figure: Figure, pixel: float) -> None:
        for number, panel in enumerate(panels, start=1):
            _draw_panel(figure.add_subplot(down, abreast, number), pixel, runs, panel, axis)
        canvas.legend(figure, pixel, labels, notes)

    return Layout(natural=Size(wanted, down * _HEIGHT + lines * _LINE + _MARGIN), draw=draw)


def curves_page(runs: Sequence[RunLog], panels: Sequence[Panel], *, axis: Axis = "steps") -> str:
    """An HTML file: the picture, a table of last and best values, and the notes as text."""
    picture = base64.b64encode(canvas.rendered(curves(runs, panels, axis=axis), "svg")).decode()
    columns = [(panel, kind) for panel in panels for kind in panel.kinds]
    header = ["run", *(f"{panel.name.replace('_', ' ')}, {kind}" for panel, kind in columns)]
    rows = [
        [run.label(), *(_last_and_best(run, panel, kind) for panel, kind in columns)]
        for run in runs
    ]
    notes = "".join(f"<li>{text(note)}</li>" for note in all_notes(runs, panels))
    body = f"""<header>
<h1>Training curves</h1>
</header>
<main>
<img alt="Curves of the values in the table below" src="data:image/svg+xml;base64,{picture}">
{table("Last value (best in parentheses)", header, rows)}
<ul class="notes">{notes}</ul>
</main>"""
    style = "".join(asset("flaxformer_mt.figures", name) for name in ("page.css", "curves.css"))
    names = ", ".join(run.name for run in runs)
    return standalone(f"Training curves: {names}", body=body, style=style)


def all_notes(runs: Sequence[RunLog], panels: Sequence[Panel]) -> list[str]:
    """What the curves don't show, one line each."""
    notes = [f"{run.name}: {note}" for run in runs for note in run.notes]
    for panel in panels:
        if missing := [run.name for run in runs if not panel.shows(run)]:
            notes.append(f"No {panel.name} from {', '.join(missing)}.")
    return notes


def _draw_panel(axes: Axes, pixel: float, runs: Sequence[RunLog], panel: Panel, axis: Axis) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    for run, colour in zip(runs, canvas.head_colours(len(runs)), strict=True):
        for kind in panel.kinds:
            series, dots = run.series[kind], kind == "valid"
            if panel.name in series.values:
                axes.plot(
                    series.at[axis],
                    series.values[panel.name],
                    color=colour,
                    linewidth=(1.0 if dots else 1.8) * pixel,
                    marker="o",
                    markersize=(5 if dots else 2.5) * pixel,
                )
    if panel.logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    canvas.plain_numbers(axes)
    axes.set_title(panel.title)
    axes.set_xlim(left=0)
    axes.set_xlabel(AXIS_NAMES[axis].partition(" (")[0])


def _last_and_best(run: RunLog, panel: Panel, kind: Kind) -> str:
    values = run.series[kind].values.get(panel.name, np.empty(0))
    there = values[np.isfinite(values)]
    if not len(there):
        return "–"
    best = _BEST.get(panel.name)
    return f"{there[-1]:,.4g}" + (f" ({best(there):,.4g})" if best else "")
