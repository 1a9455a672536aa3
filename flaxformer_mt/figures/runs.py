"""The reports of training runs as series of numbers, and which ones are drawn."""

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float64

from flaxformer_mt.figures import FigureError
from flaxformer_mt.rundir.layout import open_run, read_record, read_status
from flaxformer_mt.rundir.metrics_log import (
    column,
    is_number,
    progress,
    read_metrics,
)

Axis = Literal["steps", "tokens", "hours"]
AXES: tuple[Axis, ...] = get_args(Axis)
AXIS_NAMES: dict[Axis, str] = {
    "steps": "steps",
    "tokens": "target tokens",
    "hours": "hours of training steps (without validation, checkpoints and pauses)",
}
Kind = Literal["train", "valid"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """Reports of one kind in order of steps; NaN where a value is missing or not a number.

    `at` has their places on each axis, NaN if unknown.
    """

    at: Mapping[Axis, Float64[np.ndarray, " reports"]]
    values: Mapping[str, Float64[np.ndarray, " reports"]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunLog:
    """What a run has reported, and notes for readers of its curves."""

    name: str
    state: str
    starts: int
    series: Mapping[Kind, Series]
    notes: tuple[str, ...]

    def label(self) -> str:
        starts = f", {self.starts} starts" if self.starts > 1 else ""
        return f"{self.name} ({self.state}{starts})"

    def has(self, kind: Kind, name: str) -> bool:
        return bool(np.isfinite(self.series[kind].values.get(name, np.nan)).any())


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

    Raises FigureError, and RunDirectoryError naming file and line.
    """
    paths = [_split(each) for each in named]
    names = _short_names(paths)
    return [_read(path, name) for (_, path), name in zip(paths, names, strict=True)]


def panels(runs: Sequence[RunLog], names: Sequence[str] = ()) -> list[Panel]:
    """The panels of these names, or all usual ones that a run has values for.

    Raises FigureError for a name that no run has, listing those that exist.
    """
    there: dict[str, list[Kind]] = {}
    for kind, run in itertools.product(KINDS, runs):
        for name in run.series[kind].values:
            if run.has(kind, name) and kind not in there.setdefault(name, []):
                there[name].append(kind)
    if not names:
        return [panel for panel in KNOWN if panel.name in there]
    found = []
    for name in dict.fromkeys(names):
        if name not in there:
            raise FigureError(f"no run has reported {name!r}; there are: {', '.join(there)}")
        both = " (line: training, dots: validation)" if len(there[name]) > 1 else ""
        plain = Panel(name, f"{name.replace('_', ' ')}{both}", tuple(there[name]))
        found.append(next((panel for panel in KNOWN if panel.name == name), plain))
    return found


def _read(path: str, name: str) -> RunLog:
    run = open_run(path)
    reports = read_metrics(run.metrics)
    if not reports:
        raise FigureError(f"{path}: has no reports yet (metrics.jsonl): train it first")
    notes = []
    series: dict[Kind, Series] = {}
    done = progress(reports)
    for kind in KINDS:
        of_kind = [one for one in reports if (one.get("kind") == "valid") == (kind == "valid")]
        at = np.array([report["step"] for report in of_kind], np.float64)
        numbers = (name for report in of_kind for name in report if is_number(report[name]))
        values = {name: column(of_kind, name) for name in dict.fromkeys(numbers) if name != "step"}
        # Between two reports in proportion, after the last one unknown.
        tokens = np.interp(at, done.steps, done.tgt_tokens, right=np.nan)
        hours = np.interp(at, done.steps, done.seconds, right=np.nan) / 3600
        places: dict[Axis, Any] = {"steps": at, "tokens": tokens, "hours": hours}
        series[kind] = Series(at=places, values=values)
        for value in ("loss", "perplexity", "bleu"):
            if count := int(np.isnan(values.get(value, np.empty(0))).sum()):
                notes.append(
                    f"{count} of {len(at)} {kind} reports have no finite {value}: gaps in its curve"
                )
    if np.isnan(done.tgt_tokens).any():
        notes.append("some reports have no rates: tokens and hours are unknown after them")
    status = read_status(run)
    state = f"{status.state} at step {status.step:,}" if status else "state unknown"
    if status and status.state == "running":
        state = f"running or killed, step {reports[-1]['step']:,}"
    starts = len(read_record(run).starts)
    if starts > 1:
        notes.append(f"{starts} starts; the log does not show at which steps")
    return RunLog(name=name, state=state, starts=starts, series=series, notes=tuple(notes))


def _split(named: str) -> tuple[str, str]:
    name, equals, path = named.partition("=")
    # A path may have an equals sign of its own.
    if equals and name and "/" not in name and not os.path.exists(named):
        return name, path
    return "", named


def _short_names(paths: Sequence[tuple[str, str]]) -> list[str]:
    parts = [os.path.normpath(path).split(os.sep) for _, path in paths]
    for deep in range(1, max(map(len, parts), default=1) + 1):
        names = [name or "/".join(of[-deep:]) for (name, _), of in zip(paths, parts, strict=True)]
        if len(set(names)) == len(names):
            return names
    twice = next(name for name in names if names.count(name) > 1)
    raise FigureError(f"{twice} is given twice: give each run once, or NAME=RUN")
