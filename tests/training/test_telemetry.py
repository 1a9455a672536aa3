"""What a reader of the screen, of metrics.jsonl and of TensorBoard gets to see."""

import contextlib
import dataclasses
import io
import json
import math
import struct
import types
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from flaxformer_mt.rundir.metrics_log import MetricsLog, read_metrics
from flaxformer_mt.training import telemetry
from flaxformer_mt.training.instruments import Peak, Utilization
from flaxformer_mt.training.telemetry import Board, Sums, Telemetry, Window, duration, perplexity
from tests.training.examples import VOCAB, tiny

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
        MetricsLog(folder / "metrics.jsonl") as log,
        contextlib.closing(
            Telemetry(
                log=log, tensorboard=folder / "board", start=start, total=100_000, stream=stream
            )
        ) as telemetry,
    ):
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
        telemetry.rewind(10)
    shown = screen.getvalue()
    assert LINE.format("") in shown
    assert "validating: " in shown and "validating" not in shown.rpartition("\r")[2]
    assert "40/100000" in shown and "ppl 8.00" in shown
    assert "10/100000" in shown.rpartition("\r")[2]


def test_the_log_and_the_board_have_every_number_once(tmp_path):
    with open_screen(tmp_path, io.StringIO()) as telemetry:
        telemetry.training(1500, REPORT)
        telemetry.validation(1500, {"loss": 2.25, "bleu": 31.456}, best=True)
        telemetry.training(1600, REPORT)
        telemetry.rewind(1500)
        telemetry.training(1550, REPORT)
    assert read_metrics(tmp_path / "metrics.jsonl") == [
        {"step": 1500, "kind": "train", **REPORT},
        {"step": 1500, "kind": "valid", "loss": 2.25, "bleu": 31.456},
        {"step": 1550, "kind": "train", **REPORT},
    ]
    shown = {(tag, step): value for tag, step, value in seen(tmp_path / "board")}
    assert {step for _, step in shown} == {1500, 1550}
    for name, value in REPORT.items():
        assert shown[f"train/{name}", 1500] == pytest.approx(value)
    assert shown["valid/bleu", 1500] == pytest.approx(31.456)


def test_a_board_that_cannot_be_written_is_said_once(tmp_path):
    (tmp_path / "board").write_text("a file where the folder would be")
    screen = io.StringIO()
    with open_screen(tmp_path, screen) as telemetry:
        for step in (100, 200):
            telemetry.training(step, REPORT)
    assert screen.getvalue().count("board: cannot be written: File exists; until") == 1
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [100, 200]


def test_perplexity_and_duration():
    nlls = {0.0: 1.0, math.log(7): 7.0, 1e4: math.inf, math.inf: math.inf, math.nan: math.nan}
    for nll, value in nlls.items():
        assert perplexity(nll) == pytest.approx(value, nan_ok=True)
    times = {0.4: "0:00:00", 59.6: "0:01:00", 3723: "1:02:03", 90_000: "1 day, 1:00:00"}
    for seconds, text in {**times, math.inf: "?", math.nan: "?"}.items():
        assert duration(seconds) == text


def events(folder: Path) -> Iterator[Event]:
    """In the order of the files' names: records of length, data and checksums."""
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            yield Event.FromString(data[12 : 12 + length])
            data = data[12 + length + 4 :]


def seen(folder: Path) -> list[tuple[str, int, float]]:
    """What TensorBoard shows: the start of a session hides what earlier ones had from its step."""
    shown: list[tuple[str, int, float]] = []
    for event in events(folder):
        if event.session_log.status == SessionLog.START:
            shown = [value for value in shown if value[1] < event.step]
        shown += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
    return shown


def test_a_report_is_in_the_file_once_it_is_shown(tmp_path: Path) -> None:
    """Read while the writer is open, as another machine would if this one were lost now."""
    board = Board(tmp_path / "board", after=7)
    assert not (tmp_path / "board").exists(), "a run that reports nothing leaves nothing"
    for step in range(8, 58):
        board.show(step, {"train/loss": 0.5 * step, "train/skipped": 0})
        assert seen(tmp_path / "board")[-2:] == [
            ("train/loss", step, 0.5 * step),
            ("train/skipped", step, 0.0),
        ]
    board.close()
    version, start, *_ = events(tmp_path / "board")
    assert version.file_version == "brain.Event:2" and version.wall_time > 1.6e9
    assert start.session_log.status == SessionLog.START and start.step == 8


@pytest.mark.parametrize("restarted", [False, True])
def test_steps_that_are_done_again_are_shown_once(tmp_path: Path, restarted: bool) -> None:
    board = Board(tmp_path, after=0)
    for step in (2, 4, 6):
        board.show(step, {"loss": float(step)})
    if restarted:
        board.close()
        board = Board(tmp_path, after=6)
    board.rewind(3)
    for step in (4, 6, 8):
        board.show(step, {"loss": 10.0 * step})
    board.close()
    shown = {step: value for _, step, value in seen(tmp_path)}
    assert shown == {2: 2.0, 4: 40.0, 6: 60.0, 8: 80.0} and len(seen(tmp_path)) == 4


def test_writers_of_one_second_empty_no_file_of_another(tmp_path: Path) -> None:
    for step in range(1, 13):
        board = Board(tmp_path, after=step - 1)
        board.show(step, {"loss": 1.0})
        board.close()
    assert [step for _, step, _ in seen(tmp_path)] == list(range(1, 13))


@pytest.fixture
def clock(monkeypatch) -> types.SimpleNamespace:
    """A clock that a test moves."""
    clock = types.SimpleNamespace(now=100.0, perf_counter=lambda: clock.now)
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


def test_a_report_begins_a_new_window_and_padding_is_no_work(clock):
    seen, reports = Window(utilization=Utilization(tiny().model, VOCAB, Peak(1.0, "a test"))), []
    for loss, positions in ((2.0, 16), (5.0, 1600)):
        seen.add(metrics(loss, 1.0, 8, 8), positions=positions)
        clock.now += 4
        reports.append(seen.report(epoch=0, steps_left=1))
    names = ("loss", "seconds_per_step", "padding")
    assert [[report[name] for name in names] for report in reports] == [[2, 4, 0], [5, 4, 0.99]]
    assert reports[0]["mfu"] == reports[1]["mfu"] > 0


def test_a_skipped_update_has_no_say_in_the_loss(clock):
    seen = Window()
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
