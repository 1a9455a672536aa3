"""What a reader of the screen and of metrics.jsonl gets to see."""

import contextlib
import io
import math
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.training import telemetry
from flaxformer_mt.training.telemetry import MetricsWindow, Telemetry, duration, perplexity
from flaxformer_mt.training.trackers import Board, Sample, Trackers
from tests.training.test_trackers import seen

REPORT = {
    "epoch": 1.25,
    "loss": 2.5,
    "perplexity": 8.0,
    "learning_rate": 0.000698771,
    "gradient_norm": 0.75,
    "src_tokens_per_second": 12345.6,
    "tgt_tokens_per_second": 11111.1,
    "padding": 0.0725,
    "data_wait": 0.0012,
    "skipped": 0.0,
    "seconds_per_step": 0.4,
    "eta_seconds": 3723.0,
}
LINE = (
    "step 1,500/100,000 · epoch 1.25 · loss 2.5000 · ppl 8.00 · lr 0.000699 · grad 0.750 · "
    "src 12,346 tok/s · tgt 11,111 tok/s · padding 7.2% · data wait 0.12%{} · ETA 1:02:03\n"
)
ODD = {"loss": math.nan, "perplexity": math.inf, "eta_seconds": math.inf}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def open_screen(folder: Path, stream: io.StringIO, start: int = 0) -> Iterator[Telemetry]:
    with (
        Trackers(print) as trackers,
        Telemetry(
            RunDirectory(folder), trackers, start=start, total=100_000, stream=stream
        ) as telemetry,
    ):
        trackers.add("tensorboard", Board(folder / "board", "the = config"))
        yield telemetry


def test_a_report_is_one_plain_line_where_there_is_no_terminal(tmp_path):
    screen = io.StringIO()
    with open_screen(tmp_path, screen) as telemetry:
        telemetry.step(2.0)
        with telemetry.doing("validating"):
            telemetry.training(1500, REPORT)
        telemetry.training(1500, {**REPORT, "skipped": 3.0})
        telemetry.training(1500, REPORT | ODD)
        telemetry.validation(1500, {"loss": 2.25, "bleu": 31.456}, best=True)
        telemetry.validation(1600, {"loss": 2.5}, best=False)
        telemetry.message("as it is")
    odd = LINE.format("").replace("2.5000 · ppl 8.00", "nan · ppl inf").replace("1:02:03", "?")
    assert screen.getvalue() == (
        "validating...\n"
        + LINE.format("")
        + LINE.format(" · skipped 3")
        + odd
        + "validation at step 1,500 · loss 2.25 · bleu 31.46 · best so far\n"
        + "validation at step 1,600 · loss 2.50\n"
        + "as it is\n"
    )


def test_a_terminal_has_a_bar_and_the_same_lines_above_it(tmp_path):
    screen = Terminal()
    with open_screen(tmp_path, screen, start=40) as telemetry:
        telemetry.step(8.0)
        with telemetry.doing("validating"):
            telemetry.training(1500, REPORT)
        telemetry.rewind(10, every=10)
    output = screen.getvalue()
    assert LINE.format("") in output
    assert "validating: " in output and "validating" not in output.rpartition("\r")[2]
    assert "40/100000" in output and "ppl 8.00" in output
    assert "10/100000" in output.rpartition("\r")[2]


def test_lost_reports_are_said_when_training_resumes(tmp_path):
    screen = io.StringIO()
    with open_screen(tmp_path, screen) as telemetry:
        telemetry.rewind(99, every=100)
        telemetry.training(100, REPORT)
        telemetry.rewind(199, every=100)
        assert "warning" not in screen.getvalue()
        telemetry.rewind(200, every=100)
    path = tmp_path / "metrics.jsonl"
    assert (
        f"warning: {path} has no report after step 100, though training resumes after step 200"
        in (screen.getvalue())
    )


def test_the_log_and_the_board_have_every_number_once(tmp_path):
    with open_screen(tmp_path, io.StringIO()) as telemetry:
        telemetry.training(1500, REPORT)
        telemetry.samples(1500, [Sample("Who ?", "Wer ?", "Was ?"), Sample("a", "b", "c")])
        telemetry.validation(1500, {"loss": 2.25, "bleu": 31.456}, best=True)
        telemetry.training(1600, REPORT)
        telemetry.rewind(1500, every=100)
        telemetry.training(1550, REPORT)
    assert read_metrics(tmp_path / "metrics.jsonl") == [
        {"step": 1500, "kind": "train", **REPORT},
        {"step": 1500, "kind": "valid", "loss": 2.25, "bleu": 31.456},
        {"step": 1550, "kind": "train", **REPORT},
    ]
    scalars = {(tag, step): value for tag, step, value in seen(tmp_path / "board")}
    assert {step for _, step in scalars} == {1500, 1550}
    for name, value in REPORT.items():
        assert scalars[f"train/{name}", 1500] == pytest.approx(value)
    assert scalars["valid/bleu", 1500] == scalars["best/bleu", 1500] == pytest.approx(31.456)
    assert scalars["best/step", 1500] == 1500
    assert (tmp_path / "samples" / "step-1500.txt").read_text() == (
        "source     Who ?\nreference  Wer ?\nhypothesis Was ?\n\n"
        "source     a\nreference  b\nhypothesis c\n"
    )


def test_perplexity_and_duration():
    nlls = {0.0: 1.0, math.log(7): 7.0, 1e4: math.inf, math.inf: math.inf, math.nan: math.nan}
    for nll, value in nlls.items():
        assert perplexity(nll) == pytest.approx(value, nan_ok=True)
    times = {0.4: "0:00:00", 59.6: "0:01:00", 3723: "1:02:03", 90_000: "1 day, 1:00:00"}
    for seconds, text in {**times, math.inf: "?", math.nan: "?"}.items():
        assert duration(seconds) == text


@pytest.fixture
def clock(monkeypatch) -> types.SimpleNamespace:
    """A clock that a test moves."""
    clock = types.SimpleNamespace(now=100.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(telemetry, "time", clock)
    return clock


def metrics(loss: float, nll: float, src: int, tgt: int, **others: float) -> dict[str, np.ndarray]:
    values = {"loss": loss, "nll": nll, "src_tokens": src, "tgt_tokens": tgt, "sentences": 2}
    values["tgt_weight"] = tgt
    values |= {"bad_run": 0, "skipped": 0, "learning_rate": 0.25, "gradient_norm": 1.5} | others
    return {name: np.asarray(value) for name, value in values.items()}


def test_report_by_hand(clock):
    seen = MetricsWindow()
    seen.add(metrics(2.0, 1.0, 30, 10), positions=50)
    seen.add(metrics(4.0, 3.0, 10, 30, learning_rate=0.5, gradient_norm=2.5), positions=50)
    seen.waited(0.5)
    clock.now += 10
    with seen.paused():
        clock.now += 2
    clock.now += 3
    seen.left_out(3)
    on_the_bar = seen.perplexity
    report = seen.report(epoch=1.5, steps_left=7)
    assert on_the_bar == report["perplexity"]
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


def test_a_skipped_update_has_no_say_in_the_loss(clock):
    seen = MetricsWindow()
    seen.add(metrics(2.0, 1.0, 10, 10), positions=40)
    seen.add(metrics(math.nan, math.nan, 10, 10, bad_run=1, skipped=1), positions=40)
    clock.now += 4
    report = seen.report(epoch=0, steps_left=0)
    assert (report["loss"], report["skipped"]) == (2.0, 1)
    assert report["perplexity"] == pytest.approx(math.e)
    # The work was done all the same.
    assert (report["src_tokens_per_second"], report["padding"]) == (5, 0.5)

    # Without a good update there is no loss.
    seen.add(metrics(math.nan, math.nan, 10, 10, bad_run=1, skipped=1), positions=40)
    clock.now += 4
    report = seen.report(epoch=0, steps_left=0)
    assert math.isnan(report["loss"]) and math.isnan(report["perplexity"])
