"""`training_speed`: the arithmetic of its reports."""

import pytest

from benchmarks.training_report import (
    TOLERANCE,
    Disqualified,
    Measured,
    check_parameters,
    ratio,
    workload_metrics,
)
from benchmarks.training_workloads import Work

WORK = Work(vocabulary=100, steps=4, tgt_tokens=1000, padding=0.25, flops=8e9)


def measured(*seconds: float, bfloat16: bool = False) -> Measured:
    return Measured(
        **{"bfloat16": bfloat16, "setup": "a package, a device", "parameters": 123},
        **{"cold_seconds": 9.0, "warm_seconds": [3.0, 2.0, 4.0], "run_seconds": list(seconds)},
        peak_bytes=5 * 2**20,
    )


def test_rates_shares_and_times_of_a_contestant():
    measurements = {"ours": measured(2.0, 1.0, 4.0), "peer": measured(4.0, 4.0, 5.0, bfloat16=True)}
    metrics, signatures = workload_metrics(
        "toy", WORK, measurements, {"float32": 16e9, "bfloat16": 40e9}
    )
    expected = {
        "ours_tokens_per_second": 500,
        "ours_tokens_per_second_lowest": 250,
        "ours_tokens_per_second_highest": 1000,
        # 8 GFLOP in two seconds, in four.
        "ours_share_of_ceiling": 4 / 16,
        "peer_share_of_ceiling": 2 / 40,
        "ours_warm_first_step_seconds": 3.0,
        "ours_cold_first_step_seconds": 9.0,
        "ours_peak_memory_mib": 5,
        "gflops_a_token": 0.008,
        "padding": 0.25,
        "ours_times_peer": 2.0,
    }
    for name, value in expected.items():
        assert metrics[f"toy_{name}"] == pytest.approx(value), name
    assert signatures["toy_peer_tokens_per_second"] == "a package, a device"
    # A machine that is slow in one round slows both, and changes no ratio.
    assert ratio([100, 10, 100], [50, 5, 50]) == 2
    assert ratio([100, 10, 30], [50, 5, 30]) == 2


def test_another_model_is_disqualified():
    largest = round(1_000_000 * (1 + TOLERANCE))
    for count in (1_000_000, largest, 2_000_000 - largest):
        check_parameters("peer", count, 1_000_000)
    for count in (largest + 1, 2_000_000 - largest - 1, 0):
        with pytest.raises(Disqualified, match=r"peer has [\d,]+ parameters, .* of the 1,000,000"):
            check_parameters("peer", count, 1_000_000)
