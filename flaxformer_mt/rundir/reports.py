"""What the reports of `metrics.jsonl` come to: columns of numbers, and sums over all steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64

Report = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """What had been done at each training report and, first of all, at step 0.

    Sums are NaN from the first report on that has not the rate.
    """

    steps: Float64[np.ndarray, " reports+1"]
    seconds: Float64[np.ndarray, " reports+1"]  # of steps: no validation, checkpoints or pauses
    src_tokens: Float64[np.ndarray, " reports+1"]
    tgt_tokens: Float64[np.ndarray, " reports+1"]


def last_told(reports: Sequence[Report]) -> list[Report]:
    """Without what a later line tells again: a restart goes back, and tells those steps anew.

    `MetricsLog` sees to that itself, unless the disk was full.
    """
    kept: list[Report] = []
    for report in reports:
        step, kind = report["step"], report.get("kind")
        while kept and kept[-1]["step"] > step:
            kept.pop()
        same = range(len(kept) - sum(each["step"] == step for each in kept[-2:]), len(kept))
        for place in reversed(same):
            if kept[place].get("kind") == kind:
                del kept[place]
        kept.append(report)
    return kept


def progress(reports: Sequence[Report]) -> Progress:
    """The sums of training reports, each of which has rates over the steps since the one before.

    Steps that were told twice count once, as they were told last.
    """
    train = [report for report in last_told(reports) if report.get("kind") != "valid"]
    steps = np.array([0.0, *(report["step"] for report in train)])
    seconds = np.diff(steps) * column(train, "seconds_per_step")
    return Progress(
        steps=steps,
        seconds=_summed(seconds),
        src_tokens=_summed(seconds * column(train, "src_tokens_per_second")),
        tgt_tokens=_summed(seconds * column(train, "tgt_tokens_per_second")),
    )


def column(reports: Sequence[Report], name: str) -> Float64[np.ndarray, " reports"]:
    """The values under `name`, NaN where there is none or no finite number."""
    found = [report.get(name) for report in reports]
    whole = np.array([value if is_number(value) else math.nan for value in found], np.float64)
    return np.where(np.isfinite(whole), whole, np.nan)


def is_number(value: Any) -> bool:
    """Whether a report's value is a number, finite or not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _summed(parts: Float64[np.ndarray, " reports"]) -> Float64[np.ndarray, " reports+1"]:
    return np.concatenate([[0.0], np.cumsum(parts)])
