"""A part of `first_contact`, and what it leaves."""

import contextlib
import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.training_report import without_paths
from flaxformer_mt.rehearsal.limited import TimedStage
from flaxformer_mt.reproduction.result_file import Result, read_results
from flaxformer_mt.rundir.metrics_log import read_metrics

CURVE = 12  # points of the loss curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part(TimedStage):
    """A part that is `beside` the others starts with the first one, and ends before the second or
    the last starts.

    Its results are read from `results`; its processes have their logs in `logs`.
    """

    beside: bool = False
    results: Path | None = None
    logs: Path | None = None
    standard_output: bool = False  # holds the doctor's findings


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
