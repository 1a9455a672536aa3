"""The arithmetic of `training_speed`: medians, ratios of rounds, shares, disqualification."""

from __future__ import annotations

import pytest

from benchmarks.training_report import (
    TOLERANCE,
    Disqualified,
    Measured,
    check_parameters,
    line,
    ratio,
    workload_metrics,
)
from benchmarks.training_workloads import Work

WORK = Work(vocabulary=100, steps=4, tgt_tokens=1000, padding=0.25, flops=8e9)


def measured(*seconds: float, bfloat16: bool = False) -> Measured:
    return Measured(
        bfloat16=bfloat16,
        setup="a package, a device",
        parameters=123,
        cold_seconds=9.0,
        warm_seconds=[3.0, 2.0, 4.0],
        run_seconds=list(seconds),
        peak_bytes=5 * 2**20,
    )


def test_rates_shares_and_times_of_a_contestant():
    metrics, signatures = workload_metrics(
        "toy",
        WORK,
        {"ours": measured(2.0, 1.0, 4.0), "peer": measured(4.0, 4.0, 5.0, bfloat16=True)},
        {"float32": 16e9, "bfloat16": 40e9},
    )
    assert metrics["toy_ours_tokens_per_second"] == 500
    assert metrics["toy_ours_tokens_per_second_lowest"] == 250
    assert metrics["toy_ours_tokens_per_second_highest"] == 1000
    # 8 GFLOP in two seconds, in four.
    assert metrics["toy_ours_share_of_ceiling"] == pytest.approx(4 / 16)
    assert metrics["toy_peer_share_of_ceiling"] == pytest.approx(2 / 40)
    assert metrics["toy_ours_warm_first_step_seconds"] == 3.0
    assert metrics["toy_ours_cold_first_step_seconds"] == 9.0
    assert metrics["toy_ours_peak_memory_mib"] == 5
    assert metrics["toy_gflops_a_token"] == pytest.approx(0.008)
    assert metrics["toy_padding"] == 0.25
    assert signatures["toy_peer_tokens_per_second"] == "a package, a device"
    assert metrics["toy_ours_times_peer"] == 2.0
    assert line("peer", WORK, measured(2.0, 1.0, 4.0)).split() == (
        "peer 500 target tokens/s (250 to 1,000)".split()
    )


def test_a_ratio_is_that_of_the_rounds():
    """A machine that is slow in one round slows both, and changes no ratio."""
    assert ratio([100, 10, 100], [50, 5, 50]) == 2
    assert ratio([100, 10, 30], [50, 5, 30]) == 2


def test_another_model_is_disqualified():
    at = round(1_000_000 * (1 + TOLERANCE))
    for count in (1_000_000, at, 2_000_000 - at):
        check_parameters("peer", count, 1_000_000)
    for count in (at + 1, 2_000_000 - at - 1, 0):
        with pytest.raises(Disqualified, match=r"peer has [\d,]+ parameters, .* of the 1,000,000"):
            check_parameters("peer", count, 1_000_000)
