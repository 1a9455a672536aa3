"""Sums over the reports of a log, whatever it tells twice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flaxformer_mt.rundir.metrics_log import column, last_told, progress


def train(step: int, seconds: float, src: float = 10.0, tgt: float = 20.0) -> dict[str, Any]:
    rates = {"src_tokens_per_second": src, "tgt_tokens_per_second": tgt}
    return {"step": step, "kind": "train", "seconds_per_step": seconds, **rates}


def valid(step: int) -> dict[str, Any]:
    return {"step": step, "kind": "valid", "loss": 1.0}


def test_sums_are_of_rates_since_the_report_before():
    done = progress([train(10, 2.0), valid(10), train(14, 0.5, src=100.0, tgt=10.0)])
    np.testing.assert_array_equal(done.steps, [0, 10, 14])
    np.testing.assert_array_equal(done.seconds, [0, 20, 22])
    np.testing.assert_array_equal(done.src_tokens, [0, 200, 400])
    np.testing.assert_array_equal(done.tgt_tokens, [0, 400, 420])
    assert progress([]).seconds.tolist() == [0]


def test_steps_told_twice_count_once():
    """As of a log that could not be cut at a restart: its disk was full."""
    again = [train(10, 1.0), train(20, 9.0), valid(20), train(30, 9.0), train(20, 2.0), valid(20)]
    once = [train(10, 1.0), train(20, 2.0), valid(20)]
    assert last_told(again) == once
    np.testing.assert_array_equal(progress(again).seconds, progress(once).seconds)
    assert progress(again).seconds[-1] == 10 + 20
    assert last_told([train(10, 1.0), train(10, 3.0)]) == [train(10, 3.0)]


def test_without_a_rate_the_sum_is_not_known_from_there_on():
    reports = [train(10, 1.0), train(20, 1.0), train(30, 1.0)]
    del reports[1]["src_tokens_per_second"]
    done = progress(reports)
    np.testing.assert_array_equal(done.src_tokens, [0, 100, np.nan, np.nan])
    np.testing.assert_array_equal(done.tgt_tokens, [0, 200, 400, 600])


def test_what_is_no_finite_number_is_a_gap():
    values = [1, 2.5, math.inf, math.nan, "x", True, None]
    reports: list[dict[str, Any]] = [{"step": 1, "a": value} for value in values] + [{"step": 2}]
    np.testing.assert_array_equal(column(reports, "a"), [1, 2.5, *[np.nan] * 6])
