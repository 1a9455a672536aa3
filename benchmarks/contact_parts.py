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
from flaxformer_mt.reproduction.result_file import read_results
from flaxformer_mt.rundir.metrics_log import read_metrics

CURVE = 12  # points of the loss curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A command (what follows `python -m`), given the seconds that it has.

    It has `most` at most, and does not begin with less than `least`. One that is `beside` starts
    with the first part, and ends before the second one starts or the last. Its results are read
    from `results`; processes that it asks have their logs in `logs`.
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
                process_group=0,  # what it starts ends with it
            )

    def end(self) -> tuple[str, float]:
        """The reason, "" if there is none, and the seconds that it has taken."""
        reason = ""
        try:
            left = self._start + self._seconds - time.perf_counter()
            if status := self._process.wait(max(0.0, left)):
                lines = self._log.read_text(encoding="utf-8", errors="replace").strip()
                reason = f"status {status}: {lines.rpartition(chr(10))[2].strip()}"
        except subprocess.TimeoutExpired:
            reason = f"stopped after {self._seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return reason, time.perf_counter() - self._start


def outcome(part: Part, work: Path) -> tuple[dict[str, float], dict[str, str]]:
    """What a part has left, also where it failed: metrics and signatures under its own name."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    if part.standard_output:
        with contextlib.suppress(json.JSONDecodeError):
            numbers, texts = findings(json.loads((work / f"{part.name}.out").read_text()))
    for result in [] if part.results is None else read_results(part.results):
        numbers |= result.metrics
        texts |= result.signatures
        # A form of attention that cannot do something says so in words alone.
        for name, told in result.details.items():
            if part.name == "attention":
                numbers[f"{name}_cannot"], texts[f"{name}_cannot"] = 1, without_paths(told)
    if part.name == "text":
        with contextlib.suppress(FileNotFoundError):
            numbers |= curve(work / "run" / "metrics.jsonl")
    for name in [name for name, value in numbers.items() if not math.isfinite(value)]:
        texts[f"{name}_not_finite"] = str(numbers.pop(name))
        numbers[f"{name}_not_finite"] = 1

    def named(name: str) -> str:
        return name if name.startswith(f"{part.name}_") else f"{part.name}_{name}"

    return (
        {named(name): value for name, value in numbers.items()},
        {named(name): text for name, text in texts.items() if name in numbers},
    )


def findings(found: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, str]]:
    """The doctor's: how many of each kind, every number, and what is not in order in words."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    for state in ("ok", "warn", "FAIL"):
        those = [each for each in found if each["state"] == state]
        numbers[f"findings_{state.lower()}"] = len(those)
        if those and state != "ok":
            told = (f"{each['name']}: {each['text']}" for each in those)
            texts[f"findings_{state.lower()}"] = without_paths("; ".join(told))
    for each in found:
        for key, value in each["values"].items():
            if isinstance(value, int | float):
                name = re.sub(r"\W+", "_", f"{each['name']} {key}".lower())
                numbers[name] = value
    return numbers, texts


def curve(log: Path) -> dict[str, float]:
    """The training loss at some steps, the first report's and the last one's among them."""
    lines = [line for line in read_metrics(log) if line["kind"] == "train"]
    places = (round(place * (len(lines) - 1) / (CURVE - 1)) for place in range(CURVE))
    chosen = [lines[place] for place in places if lines]
    return {f"loss_after_{line['step']}_steps": line["loss"] for line in chosen}


def said(work: Path, part: Part) -> str:
    """The end of what a part and its processes have said."""
    asked = [] if part.logs is None else sorted(part.logs.glob("*.log"))
    texts = {
        path.name: path.read_text(encoding="utf-8", errors="replace")[-20_000:]
        for path in (work / f"{part.name}.log", work / f"{part.name}.out", *asked)
        if path.exists()
    }
    return "\n".join(f"-- {name}\n{text}" for name, text in texts.items() if text)
