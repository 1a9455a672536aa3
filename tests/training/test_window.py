"""The numbers of a report, worked out by hand."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from flaxformer_mt.training import telemetry
from flaxformer_mt.training.telemetry import Sums, Window


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(telemetry, "time", clock)
    return clock


def metrics(loss: float, nll: float, src: int, tgt: int, **others: float) -> dict[str, np.ndarray]:
    values = {"loss": loss, "nll": nll, "src_tokens": src, "tgt_tokens": tgt, "sentences": 2}
    values |= {"bad_run": 0, "skipped": 0, "learning_rate": 0.25, "gradient_norm": 1.5} | others
    return {name: np.asarray(value) for name, value in values.items()}


def test_report_by_hand(clock):
    seen = Window()
    seen.add(metrics(2.0, 1.0, 30, 10), positions=50)
    seen.add(metrics(4.0, 3.0, 10, 30, learning_rate=0.5, gradient_norm=2.5), positions=50)
    seen.waited(0.5)
    clock.now += 10
    with seen.paused():
        clock.now += 2
    report = seen.report(epoch=1.5, steps_left=7)
    assert report == pytest.approx(
        {
            "epoch": 1.5,
            "loss": (2 * 10 + 4 * 30) / 40,  # every target token counts the same
            "perplexity": math.exp((1 * 10 + 3 * 30) / 40),
            "learning_rate": 0.5,
            "gradient_norm": 2.5,
            "src_tokens_per_second": 40 / 10,
            "tgt_tokens_per_second": 40 / 10,
            "padding": 1 - 80 / 100,
            "data_wait": 0.05,
            "skipped": 0,
            "seconds_per_step": 5,
            "eta_seconds": 35,
        }
    )


def test_a_report_begins_a_new_window(clock):
    seen = Window()
    seen.add(metrics(2.0, 1.0, 30, 10), positions=50)
    clock.now += 3
    seen.report(epoch=0, steps_left=1)
    seen.add(metrics(5.0, 4.0, 2, 2), positions=8)
    clock.now += 2
    report = seen.report(epoch=0, steps_left=1)
    assert (report["loss"], report["seconds_per_step"], report["padding"]) == (5.0, 2.0, 0.5)


def test_a_skipped_update_has_no_say_in_the_loss(clock):
    seen = Window()
    seen.add(metrics(2.0, 1.0, 10, 10), positions=40)
    seen.add(metrics(math.nan, math.nan, 10, 10, bad_run=1, skipped=1), positions=40)
    clock.now += 4
    report = seen.report(epoch=0, steps_left=0)
    assert report["loss"] == 2.0
    assert report["perplexity"] == pytest.approx(math.e)
    assert report["skipped"] == 1
    # The work was done all the same.
    assert report["src_tokens_per_second"] == 5
    assert report["padding"] == 0.5
    # Without a good update there is no loss.
    seen.add(metrics(math.nan, math.nan, 10, 10, bad_run=1, skipped=1), positions=40)
    clock.now += 4
    report = seen.report(epoch=0, steps_left=0)
    assert math.isnan(report["loss"]) and math.isnan(report["perplexity"])


def test_a_window_goes_on_where_it_was_put_down(clock):
    """Half a report before a stop and half after it, with any time in between."""
    first = Window()
    first.add(metrics(2.0, 1.0, 30, 10), positions=50)
    clock.now += 3
    sums = first.sums
    clock.now += 1000
    second = Window(Sums(**json.loads(json.dumps(dataclasses.asdict(sums)))))
    second.add(metrics(4.0, 3.0, 10, 30), positions=50)
    clock.now += 7
    report = second.report(epoch=0, steps_left=1)
    assert report["loss"] == (2 * 10 + 4 * 30) / 40
    assert report["seconds_per_step"] == pytest.approx(5)
    assert sums.steps == 1
