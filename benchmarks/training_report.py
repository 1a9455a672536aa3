"""Turns contestants' measurements into the numbers of a result: medians, ratios, shares."""

import dataclasses
import re
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.training_workloads import Work

TOLERANCE = 0.02
"""The share by which a contestant's parameters may differ from ours: one has biases and norms that
the other lacks. A larger difference means another model."""

OURS = ("ours", "ours_bfloat16")
# A path belongs to one machine. Its last part is kept: it says which file is meant.
_PATH = re.compile(r"(?:/[\w.+@=-]+){2,}/([\w.+@=-]+)")


class Disqualified(RuntimeError):
    """A contestant that doesn't do the work of the others; says why."""


@dataclasses.dataclass(kw_only=True)
class Measured:
    """The measurements of one contestant in one workload, in seconds and bytes; lists are of
    rounds."""

    bfloat16: bool = False
    setup: str = ""
    parameters: int = 0
    cold_seconds: float | None = None
    warm_seconds: list[float] = dataclasses.field(default_factory=list)
    run_seconds: list[float] = dataclasses.field(default_factory=list)
    peak_bytes: int = 0
    device_bytes: int | None = None
    failure: str = ""


def check_parameters(name: str, count: int, expected: int) -> None:
    """Raises Disqualified where a model is not ours in size, to within TOLERANCE."""
    if abs(count - expected) > TOLERANCE * expected:
        raise Disqualified(
            f"{name} has {count:,} parameters, {count / expected - 1:+.1%} of the {expected:,} "
            f"compared; {TOLERANCE:.0%} are allowed"
        )


def workload_metrics(
    workload: str,
    work: Work,
    measured: Mapping[str, Measured],
    ceilings: Mapping[str, float],
) -> tuple[dict[str, float], dict[str, str]]:
    """Metrics of one workload, and the signatures that say how each contestant was set up.

    `ceilings` are FLOP/s by number type; without one, a contestant has no share of it. A contestant
    that failed is in the result with its reason, and in no ratio.
    """
    metrics: dict[str, float] = {
        f"{workload}_gflops_a_token": work.flops / work.tgt_tokens / 1e9,
        f"{workload}_padding": work.padding,
    }
    signatures: dict[str, str] = {}
    rates = {
        name: [work.tgt_tokens / seconds for seconds in contestant.run_seconds]
        for name, contestant in measured.items()
        if not contestant.failure
    }
    for name, contestant in measured.items():
        key = f"{workload}_{name}"
        if contestant.failure:
            metrics[f"{key}_failed"] = 1
            signatures[f"{key}_failed"] = without_paths(contestant.failure)
            continue
        ceiling = ceilings.get("bfloat16" if contestant.bfloat16 else "float32")
        for metric, number in _contestant_metrics(contestant, work, rates[name], ceiling).items():
            metrics[f"{key}_{metric}"] = number
        signatures[f"{key}_tokens_per_second"] = contestant.setup

    for ours in OURS:
        for name in rates:
            if ours in rates and name not in OURS:
                metrics[f"{workload}_{ours}_times_{name}"] = ratio(rates[ours], rates[name])
    return metrics, signatures


def _contestant_metrics(
    contestant: Measured, work: Work, rates: Sequence[float], ceiling: float | None
) -> dict[str, float]:
    """Metrics of one contestant; `rates` are its runs' target tokens per second."""
    median = statistics.median(rates)
    metrics = {
        "tokens_per_second": median,
        "tokens_per_second_lowest": min(rates),
        "tokens_per_second_highest": max(rates),
    }
    if ceiling is not None:
        flops_per_second = work.flops * median / work.tgt_tokens
        metrics["share_of_ceiling"] = flops_per_second / ceiling
    if contestant.peak_bytes:
        metrics["peak_memory_mib"] = contestant.peak_bytes / 2**20
    if contestant.device_bytes is not None:
        metrics["device_memory_mib"] = contestant.device_bytes / 2**20
    if contestant.cold_seconds is not None:
        metrics["cold_first_step_seconds"] = contestant.cold_seconds
    if contestant.warm_seconds:
        metrics["warm_first_step_seconds"] = statistics.median(contestant.warm_seconds)
    metrics["parameters"] = contestant.parameters
    return metrics


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the rounds' ratios: a slow machine slows both contestants of a round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def line(name: str, work: Work, measured: Measured) -> str:
    """A contestant's rate and its spread, or why there is none, for people."""
    if measured.failure:
        return f"{name:<24} could not run: {without_paths(measured.failure)}"
    rates = [work.tgt_tokens / seconds for seconds in measured.run_seconds]
    return (
        f"{name:<24} {statistics.median(rates):>9,.0f} target tokens/s "
        f"({min(rates):,.0f} to {max(rates):,.0f})"
    )


def without_paths(text: str) -> str:
    return _PATH.sub(r".../\1", text)
