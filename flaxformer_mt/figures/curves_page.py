"""Training curves as one HTML file: axis, quantities and runs are picked, pointing shows values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

from flaxformer_mt.figures.colours import head_colours
from flaxformer_mt.figures.curves import all_notes
from flaxformer_mt.figures.panels import Panel
from flaxformer_mt.figures.runs import AXES, AXIS_NAMES, Axis, Kind, RunLog
from flaxformer_mt.pages import asset, standalone, text

_BEST = {"loss": min, "perplexity": min, "bleu": max, "chrf": max}
_HERE = "flaxformer_mt.figures"


def curves_page(runs: Sequence[RunLog], panels: Sequence[Panel], *, axis: Axis = "steps") -> str:
    """The file's text: the curves against `axis` at first, and a table of last and best values."""
    notes = "".join(f"<li>{text(note)}</li>" for note in all_notes(runs, panels))
    body = f"""<header>
<h1>Training curves</h1>
</header>
<main>
<noscript><p>The curves on this page are drawn by its script, which the browser does not run.</p>
</noscript>
<form id="pickers" hidden>
<fieldset id="axes"><legend>Against</legend></fieldset>
<fieldset id="runs"><legend>Runs</legend></fieldset>
</form>
<p id="reading" aria-live="polite">Point at a curve, or use the arrow keys within a panel.</p>
<div id="panels"></div>
{_table(runs, panels)}
<ul class="notes">{notes}</ul>
</main>"""
    names = ", ".join(run.name for run in runs)
    return standalone(
        f"Training curves: {names}",
        body=body,
        style=asset(_HERE, "page.css") + asset(_HERE, "curves.css"),
        script=asset(_HERE, "curves.js"),
        data=_data(runs, panels, axis),
    )


def _table(runs: Sequence[RunLog], panels: Sequence[Panel]) -> str:
    """Last and best values by run; a cell without a value has a dash."""
    columns = [(panel, kind) for panel in panels for kind in panel.kinds]
    head = "".join(
        f'<th scope="col">{text(panel.name.replace("_", " "))}, {kind}</th>'
        for panel, kind in columns
    )
    body = "".join(
        f'<tr><th scope="row">{text(run.label())}</th>'
        + "".join(f"<td>{_cell(run, panel, kind)}</td>" for panel, kind in columns)
        + "</tr>"
        for run in runs
    )
    return (
        '<div class="wide" role="region" aria-label="Last and best values" tabindex="0"><table>'
        "<caption>Last value, and the best one in brackets</caption>"
        f'<thead><tr><th scope="col">run</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(run: RunLog, panel: Panel, kind: Kind) -> str:
    values = run.series[kind].values.get(panel.name, np.empty(0))
    there = values[np.isfinite(values)]
    if not len(there):
        return "–"
    best = _BEST.get(panel.name)
    return f"{there[-1]:,.4g}" + (f" ({best(there):,.4g})" if best else "")


def _data(runs: Sequence[RunLog], panels: Sequence[Panel], axis: Axis) -> dict[str, Any]:
    return {
        "axis": axis,
        "axes": AXIS_NAMES,
        "colours": head_colours(len(runs)),
        "panels": [
            {"name": panel.name, "title": panel.title, "logarithmic": panel.logarithmic}
            for panel in panels
        ],
        "runs": [
            {
                "name": run.name,
                "label": run.label(),
                "curves": [
                    {
                        "panel": number,
                        "kind": kind,
                        "at": {each: _plain(run, kind, panel, each, 0) for each in AXES},
                        "values": _plain(run, kind, panel, axis, 1),
                    }
                    for number, panel in enumerate(panels)
                    for kind in panel.kinds
                    if panel.name in run.series[kind].values
                ],
            }
            for run in runs
        ],
    }


def _plain(run: RunLog, kind: Kind, panel: Panel, axis: Axis, column: int) -> list[float | None]:
    """A coordinate of a curve's points; null where it is interrupted."""
    points: Float64[np.ndarray, "points two"] = run.series[kind].line(axis, panel.name)
    return [None if math.isnan(value) else float(value) for value in points[:, column]]
