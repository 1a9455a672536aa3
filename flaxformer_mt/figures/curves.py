"""Training runs' reports as curves, in a picture and a page: one panel per quantity."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from jaxtyping import Float64

from flaxformer_mt.colours import head_colours
from flaxformer_mt.figures import Axis, FigureError, canvas
from flaxformer_mt.figures.canvas import Layout, Size
from flaxformer_mt.pages import figure_style, standalone, table, text
from flaxformer_mt.rundir.layout import Status, open_run, read_record, read_status
from flaxformer_mt.rundir.metrics_log import (
    LoggedProgress,
    Report,
    column,
    is_number,
    progress,
    read_metrics,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_AXIS_LABELS: dict[Axis, str] = {
    "steps": "steps",
    "tokens": "target tokens",
    "hours": "hours of training steps",
}
_LARGEST = 1e30  # what is drawn: beyond it, matplotlib's arithmetic overflows
Kind = Literal["train", "valid"]
KINDS: tuple[Kind, ...] = get_args(Kind)


# Reports of one kind in order of steps: their places on each axis, and their values by name; NaN
# where one is unknown, missing or not a number.
Series = Mapping[str, Float64[np.ndarray, " reports"]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunLog:
    """A run's reports, and notes for readers of its curves."""

    name: str
    state: str
    series: Mapping[Kind, Series]
    starts: int = 1
    notes: tuple[str, ...] = ()

    def label(self) -> str:
        starts = f", {self.starts} starts" if self.starts > 1 else ""
        return f"{self.name} ({self.state}{starts})"

    def has(self, kind: Kind, name: str) -> bool:
        return bool(np.isfinite(self.series[kind].get(name, np.nan)).any())


@dataclasses.dataclass(frozen=True)
class Panel:
    """A quantity, the kinds of reports that have it, and the scale of its axis."""

    name: str
    title: str
    kinds: tuple[Kind, ...]
    logarithmic: bool = False

    def shows(self, run: RunLog) -> bool:
        return any(run.has(kind, self.name) for kind in self.kinds)


# Training's loss is smoothed and validation's isn't, so they share no panel. Both perplexities are
# unsmoothed.
KNOWN = (
    Panel("loss", "training loss (nats per target token, smoothed)", ("train",)),
    Panel("perplexity", "perplexity (line: training, dots: validation)", KINDS, logarithmic=True),
    Panel("bleu", "validation BLEU", ("valid",)),
    Panel("source_gain", "gain from the source (nats per target token)", ("valid",)),
    Panel("learning_rate", "learning rate", ("train",)),
    Panel("tgt_tokens_per_second", "target tokens per second", ("train",)),
)


def read_runs(named: Sequence[str]) -> list[RunLog]:
    """The logs of `RUN` or `NAME=RUN`, local or `gs://`; runs of one name also get their folders'.
    Raises FigureError and RunDirectoryError."""
    runs = [_name_and_path(argument) for argument in named]
    names = _distinct_names(runs)
    return [_read(path, name) for (_, path), name in zip(runs, names, strict=True)]


def _name_and_path(argument: str) -> tuple[str, str]:
    """Of `RUN` the name is empty."""
    name, equals, path = argument.partition("=")
    # A path may have an equals sign of its own.
    if equals and name and "/" not in name and not os.path.exists(argument):
        return name, path
    return "", argument


def _distinct_names(runs: Sequence[tuple[str, str]]) -> list[str]:
    """The names, and where they are empty as few of the last folders as tell the runs apart."""
    folders = [os.path.normpath(path).split(os.sep) for _, path in runs]
    for depth in range(1, max(map(len, folders), default=1) + 1):
        names = [
            name or "/".join(path[-depth:]) for (name, _), path in zip(runs, folders, strict=True)
        ]
        if len(set(names)) == len(names):
            return names
    twice = next(name for name in names if names.count(name) > 1)
    raise FigureError(f"{twice} is given twice: give each run once, or NAME=RUN")


def panels(runs: Sequence[RunLog], names: Sequence[str] = ()) -> list[Panel]:
    """The panels of these names, or all usual ones that a run has values for. Raises FigureError
    for a name that no run has, and if there is nothing to draw."""
    reported = _reported(runs)
    if names:
        return [_panel(name, reported) for name in dict.fromkeys(names)]

    usual = [panel for panel in KNOWN if panel.name in reported]
    if not usual:
        raise FigureError(
            f"{', '.join(run.name for run in runs)}: no report has a finite loss, perplexity, "
            "BLEU or rate, so there is nothing to draw: has training diverged?"
        )
    return usual


def _reported(runs: Sequence[RunLog]) -> dict[str, list[Kind]]:
    """The quantities with a finite value, and the kinds of reports that have one."""
    reported: dict[str, list[Kind]] = {}
    for kind, run in itertools.product(KINDS, runs):
        for name in run.series[kind]:
            if name in _AXIS_LABELS or not run.has(kind, name):
                continue
            kinds = reported.setdefault(name, [])
            if kind not in kinds:
                kinds.append(kind)
    return reported


def _panel(name: str, reported: Mapping[str, Sequence[Kind]]) -> Panel:
    if name not in reported:
        listed = ", ".join(reported) or "none with a finite value"
        raise FigureError(f"no run has reported {name!r}; there are: {listed}")
    for panel in KNOWN:
        if panel.name == name:
            return panel
    kinds = tuple(reported[name])
    both = " (line: training, dots: validation)" if len(kinds) > 1 else ""
    return Panel(name, f"{name.replace('_', ' ')}{both}", kinds)


def _read(path: str, name: str) -> RunLog:
    run = open_run(path)
    reports = read_metrics(run.metrics)
    if not reports:
        raise FigureError(f"{path}: has no reports yet (metrics.jsonl): train it first")

    totals = progress(reports)
    series: dict[Kind, Series] = {}
    notes: list[str] = []
    for kind in KINDS:
        kind_reports = [
            report for report in reports if (report.get("kind") == "valid") == (kind == "valid")
        ]
        reported = _numbers(kind_reports)
        drawable = {
            quantity: np.where(np.abs(numbers) > _LARGEST, np.nan, numbers)
            for quantity, numbers in reported.items()
        }
        notes += _overflows(reported, kind)
        notes += _gaps(drawable, kind, len(kind_reports))
        series[kind] = drawable | _places(kind_reports, totals)
    if np.isnan(totals.tgt_tokens).any():
        notes.append("some reports have no rates: tokens and hours are unknown after them")

    state = _state(read_status(run), last_step=reports[-1]["step"])
    starts = len(read_record(run).starts)
    if starts > 1:
        notes.append(f"{starts} starts; the log does not show at which steps")
    return RunLog(name=name, state=state, starts=starts, series=series, notes=tuple(notes))


def _numbers(reports: Sequence[Report]) -> dict[str, Float64[np.ndarray, " reports"]]:
    """The numbers in reports of one kind by name, except their steps."""
    names = dict.fromkeys(name for report in reports for name in report if is_number(report[name]))
    return {name: column(reports, name) for name in names if name != "step"}


def _overflows(reported: Series, kind: Kind) -> Iterator[str]:
    """A note for each quantity with numbers too large to draw."""
    for quantity, numbers in reported.items():
        count = int((np.abs(numbers) > _LARGEST).sum())
        if count:
            yield f"{count} {kind} reports have a {quantity} beyond {_LARGEST:.0e}"


def _gaps(drawable: Series, kind: Kind, reports: int) -> Iterator[str]:
    """A note for each score that isn't finite in some of this many reports."""
    for score in ("loss", "perplexity", "bleu"):
        count = int(np.isnan(drawable.get(score, np.empty(0))).sum())
        if count:
            yield f"{count} of {reports} {kind} reports have no finite {score}: gaps in its curve"


def _places(
    reports: Sequence[Report], totals: LoggedProgress
) -> dict[str, Float64[np.ndarray, " reports"]]:
    """Where reports are on each axis: between two totals in proportion, after the last one
    unknown."""
    steps = np.array([report["step"] for report in reports], np.float64)
    return {
        "steps": steps,
        "tokens": np.interp(steps, totals.steps, totals.tgt_tokens, right=np.nan),
        "hours": np.interp(steps, totals.steps, totals.seconds, right=np.nan) / 3600,
    }


def _state(status: Status | None, *, last_step: int) -> str:
    if status is None:
        return "state unknown"
    if status.state == "running":
        return f"running or killed, step {last_step:,}"
    return f"{status.state} at step {status.step:,}"


_WIDTH, _HEIGHT, _LINE, _MARGIN = 412.0, 240.0, 18.0, 36.0  # pixels
_ABREAST = 3
_BEST = {"loss": min, "perplexity": min, "bleu": max, "chrf": max}


def curves(runs: Sequence[RunLog], panels: Sequence[Panel], *, axis: Axis = "steps") -> Layout:
    """The picture, with a colour per run. The runs and `all_notes` are below the panels."""
    abreast = min(_ABREAST, math.ceil(len(panels) ** 0.5))
    down = math.ceil(len(panels) / abreast)
    labels = [run.label() for run in runs]
    notes = all_notes(runs, panels)
    width = max(abreast * _WIDTH, canvas.widest([*labels, *notes], 12) + 2 * _MARGIN)
    lines = len(labels) + len(notes)

    def draw(figure: Figure, pixel: float) -> None:
        for number, panel in enumerate(panels, start=1):
            _draw_panel(figure.add_subplot(down, abreast, number), pixel, runs, panel, axis)
        canvas.legend(figure, pixel, labels, notes)

    return Layout(natural=Size(width, down * _HEIGHT + lines * _LINE + _MARGIN), draw=draw)


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
    style = figure_style("flaxformer_mt.figures", "curves.css")
    names = ", ".join(run.name for run in runs)
    return standalone(f"Training curves: {names}", body=body, style=style)


def all_notes(runs: Sequence[RunLog], panels: Sequence[Panel]) -> list[str]:
    """Notes on what the curves don't show, one line each."""
    notes = [f"{run.name}: {note}" for run in runs for note in run.notes]
    for panel in panels:
        missing = [run.name for run in runs if not panel.shows(run)]
        if missing:
            notes.append(f"No {panel.name} from {', '.join(missing)}.")
    return notes


def _draw_panel(axes: Axes, pixel: float, runs: Sequence[RunLog], panel: Panel, axis: Axis) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    # A logarithmic axis has no place for values of 0 or less.
    logarithmic = panel.logarithmic and any(
        (run.series[kind].get(panel.name, np.empty(0)) > 0).any()
        for run in runs
        for kind in panel.kinds
    )
    for run, colour in zip(runs, head_colours(len(runs)), strict=True):
        for kind in panel.kinds:
            series, dots = run.series[kind], kind == "valid"
            if panel.name in series:
                axes.plot(
                    series[axis],
                    series[panel.name],
                    color=colour,
                    linewidth=(1.0 if dots else 1.8) * pixel,
                    marker="o",
                    markersize=(5 if dots else 2.5) * pixel,
                )
    if logarithmic:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    canvas.plain_numbers(axes)
    axes.set_title(panel.title)
    axes.set_xlim(left=0)
    axes.set_xlabel(_AXIS_LABELS[axis])


def _last_and_best(run: RunLog, panel: Panel, kind: Kind) -> str:
    values = run.series[kind].get(panel.name, np.empty(0))
    finite = values[np.isfinite(values)]
    if not len(finite):
        return "–"
    best = _BEST.get(panel.name.partition("/")[0])  # of `bleu/SET` as of `bleu`
    return f"{finite[-1]:,.4g}" + (f" ({best(finite):,.4g})" if best else "")
