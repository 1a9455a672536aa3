"""`metrics.jsonl`: all logged numbers, one line per report, none lost or repeated."""

import contextlib
import dataclasses
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from flaxformer_mt.files.atomic import open_in_place, write_whole
from flaxformer_mt.files.reading import JsonError, parse_json, read_file
from flaxformer_mt.rundir import WorkdirError
from flaxformer_mt.rundir.paths import explained

# JSON has no such numbers. As text they survive any reader; `read_metrics` turns them back.
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class MetricsLog(contextlib.AbstractContextManager["MetricsLog"]):
    """An append-only log whose lines have an integer `step`; opening cuts a torn last line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained(path, "opened"):
            self._file = self._opened()
            self._file.truncate(path.read_bytes().rfind(b"\n") + 1)

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Appends a report. Raises RunDirectoryError, maybe after half a line."""
        line = {name: _plain(value) for name, value in {"step": step, **values}.items()}
        data = json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        with explained(self.path, "written"):
            while data:
                data = data[self._file.write(data) :]

    def rewind(self, step: int) -> None:
        """Drops the lines of steps after `step`, which training repeats."""
        reports = read_metrics(self.path)
        lines = read_file(self.path).splitlines(keepends=True)
        # A torn last line has no report.
        with_reports = zip(lines, reports, strict=False)
        remaining = [line for line, report in with_reports if report["step"] <= step]
        if len(remaining) < len(lines):
            with explained(self.path, "rewritten"):
                write_whole(self.path, b"".join(remaining))
                self._file.close()
                self._file = self._opened()

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _opened(self) -> io.FileIO:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        return io.FileIO(open_in_place(self.path, flags), "a+b")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every complete line, in order; none if the file doesn't exist. Raises RunDirectoryError."""
    with explained(path, "read"):
        lines = read_file(path).splitlines(keepends=True) if path.exists() else []
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return [_parse(path, number, line) for number, line in enumerate(lines, start=1)]


def lost_after(reports: Sequence[Mapping[str, Any]], step: int, *, every: int) -> int | None:
    """The last reported step (0: none) if a report `every` so many steps would have made another by
    `step`; None if nothing is missing.

    `every` may have been larger before: the distance of the last two reports counts, too.
    """
    *_, earlier, last = [0, *sorted({0, *(report["step"] for report in reports)})]
    return last if step - last >= max(every, last - earlier) else None


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        report = parse_json(line, path, number)
    except JsonError as error:
        raise WorkdirError(f"{error}; delete that line") from error
    if not isinstance(report, dict) or not isinstance(report.get("step"), int):
        raise WorkdirError(f"{path}:{number}: has no integer step; delete that line")
    return {
        name: _NON_FINITE.get(value, value) if isinstance(value, str) else value
        for name, value in report.items()
    }


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(value)
    return value


Report = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoggedProgress:
    """Sums at step 0 and at each training report.

    They are NaN from the first report on that lacks a rate.
    """

    steps: Float64[np.ndarray, " reports+1"]
    seconds: Float64[np.ndarray, " reports+1"]  # of steps: no validation, checkpoints or pauses
    src_tokens: Float64[np.ndarray, " reports+1"]
    tgt_tokens: Float64[np.ndarray, " reports+1"]


def progress(reports: Sequence[Report]) -> LoggedProgress:
    """The sums of training reports; each has the rates of the steps since the previous one."""
    train = [report for report in reports if report.get("kind") != "valid"]
    steps = np.array([0.0, *(report["step"] for report in train)])
    seconds = np.diff(steps) * column(train, "seconds_per_step")
    return LoggedProgress(
        steps=steps,
        seconds=np.cumsum([0.0, *seconds]),
        src_tokens=np.cumsum([0.0, *seconds * column(train, "src_tokens_per_second")]),
        tgt_tokens=np.cumsum([0.0, *seconds * column(train, "tgt_tokens_per_second")]),
    )


def column(reports: Sequence[Report], name: str) -> Float64[np.ndarray, " reports"]:
    """The reports' values under `name`, NaN in place of anything but finite numbers."""
    numbers = np.array([_as_float(report.get(name)) for report in reports], np.float64)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _as_float(value: Any) -> float:
    if not is_number(value):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def is_number(value: Any) -> bool:
    """Whether a report's value is a number, finite or not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
