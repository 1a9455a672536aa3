"""A part of `first_contact`: started as a process with a limit, and read when it has ended."""

import contextlib
import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.training_contest import ROOT
from benchmarks.training_report import without_paths
from flaxformer_mt.reproduction.result_file import Result, read_results
from flaxformer_mt.rundir.metrics_log import read_metrics

CURVE = 12  # points of the loss curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A command (the words after `python -m`) for the number of seconds that it may take.

    It takes `most` seconds at most, and doesn't start with less than `least`. A part that is
    `beside` the others starts with the first one, and ends before the second or the last starts.
    Its results are read from `results`; its processes have their logs in `logs`.
    """

    name: str
    command: Callable[[float], list[str]]
    most: float
    least: float = 0.0
    beside: bool = False
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    results: Path | None = None
    logs: Path | None = None
    standard_output: bool = False  # holds the doctor's findings


class Running:
    """A part that has been started. `end` waits for it and says what went wrong, if anything."""

    def __init__(self, part: Part, work: Path, seconds: float) -> None:
        self.part, self._seconds, self._start = part, seconds, time.perf_counter()
        self._log = work / f"{part.name}.log"
        with self._log.open("wb") as log, (work / f"{part.name}.out").open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *part.command(seconds)],
                stdin=subprocess.DEVNULL,
                stdout=out if part.standard_output else log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **part.environment},
                process_group=0,  # so that its own processes end with it
            )

    def end(self) -> tuple[str, float]:
        """The reason, "" if there is none, and the seconds that it has taken."""
        reason = ""
        try:
            remaining = self._start + self._seconds - time.perf_counter()
            status = self._process.wait(max(0.0, remaining))
            if status:
                log = self._log.read_text(encoding="utf-8", errors="replace").strip()
                reason = f"status {status}: {log.rpartition(chr(10))[2].strip()}"
        except subprocess.TimeoutExpired:
            reason = f"stopped after {self._seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return reason, time.perf_counter() - self._start


def outcome(part: Part, work: Path) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics and signatures that a part has left, even if it failed, under its own name."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    if part.standard_output:
        with contextlib.suppress(json.JSONDecodeError):
            numbers, texts = findings(json.loads((work / f"{part.name}.out").read_text()))
    if part.results is not None:
        for result in read_results(part.results):
            numbers |= result.metrics
            texts |= result.signatures
            if part.name == "attention":
                refused = refusals(result)
                numbers |= dict.fromkeys(refused, 1)
                texts |= refused
    if part.name == "text":
        with contextlib.suppress(FileNotFoundError):
            numbers |= curve(work / "run" / "metrics.jsonl")
    numbers, not_finite = without_non_finite(numbers)
    texts |= not_finite

    def named(name: str) -> str:
        return name if name.startswith(f"{part.name}_") else f"{part.name}_{name}"

    return (
        {named(name): number for name, number in numbers.items()},
        {named(name): text for name, text in texts.items() if name in numbers},
    )


def refusals(result: Result) -> dict[str, str]:
    """The reasons, in words alone, of forms of attention that cannot do something."""
    return {f"{form}_cannot": without_paths(reason) for form, reason in result.details.items()}


def without_non_finite(numbers: Mapping[str, float]) -> tuple[dict[str, float], dict[str, str]]:
    """A result has only finite numbers: the others become a 1 and a text that says which."""
    finite = {name: number for name, number in numbers.items() if math.isfinite(number)}
    texts = {
        f"{name}_not_finite": str(number)
        for name, number in numbers.items()
        if not math.isfinite(number)
    }
    return finite | dict.fromkeys(texts, 1), texts


def findings(
    diagnosis: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, float], dict[str, str]]:
    """The doctor's findings: how many there are of each state, all numbers, and the problems as
    text."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    for state in ("ok", "warn", "FAIL"):
        members = [finding for finding in diagnosis if finding["state"] == state]
        numbers[f"findings_{state.lower()}"] = len(members)
        if members and state != "ok":
            problems = (f"{finding['name']}: {finding['text']}" for finding in members)
            texts[f"findings_{state.lower()}"] = without_paths("; ".join(problems))
    for finding in diagnosis:
        for key, number in finding["values"].items():
            if isinstance(number, int | float):
                name = re.sub(r"\W+", "_", f"{finding['name']} {key}".lower())
                numbers[name] = number
    return numbers, texts


def curve(log: Path) -> dict[str, float]:
    """The training loss at some steps, among them those of the first and of the last report."""
    reports = [report for report in read_metrics(log) if report["kind"] == "train"]
    if not reports:
        return {}
    places = (round(point * (len(reports) - 1) / (CURVE - 1)) for point in range(CURVE))
    points = [reports[place] for place in places]
    return {f"loss_after_{report['step']}_steps": report["loss"] for report in points}


def logs(work: Path, part: Part) -> str:
    """The ends of the logs of a part and of its processes."""
    process_logs = [] if part.logs is None else sorted(part.logs.glob("*.log"))
    texts = {
        path.name: path.read_text(encoding="utf-8", errors="replace")[-20_000:]
        for path in (work / f"{part.name}.log", work / f"{part.name}.out", *process_logs)
        if path.exists()
    }
    return "\n".join(f"-- {name}\n{text}" for name, text in texts.items() if text)
