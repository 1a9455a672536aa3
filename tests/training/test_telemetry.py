"""What a reader of the screen, of metrics.jsonl and of TensorBoard gets to see."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from flaxformer_mt.rundir.metrics_log import MetricsLog, read_metrics
from flaxformer_mt.training.telemetry import Board, Telemetry, duration, perplexity

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


class Screen:
    """A telemetry on a stream of its own, with what it leaves behind."""

    def __init__(self, folder: Path, stream: io.StringIO, start: int = 0) -> None:
        self.folder, self.stream = folder, stream
        self.log = MetricsLog(folder / "metrics.jsonl")
        self.telemetry = Telemetry(
            log=self.log, tensorboard=folder / "board", start=start, total=100_000, stream=stream
        )

    def __enter__(self) -> Telemetry:
        return self.telemetry

    def __exit__(self, *_: object) -> None:
        self.telemetry.close()
        self.log.close()

    def lines(self) -> list[dict]:
        return read_metrics(self.folder / "metrics.jsonl")


def test_a_report_is_one_plain_line_where_there_is_no_terminal(tmp_path):
    screen = Screen(tmp_path, io.StringIO())
    with screen as telemetry:
        telemetry.step(2.0)
        telemetry.training(1500, REPORT)
        telemetry.training(1500, {**REPORT, "skipped": 3.0})
        telemetry.training(1500, REPORT | ODD)
        telemetry.validation(1500, {"loss": 2.25, "bleu": 31.456}, best=True)
        telemetry.validation(1600, {"loss": 2.5}, best=False)
        telemetry.message("as it is")
    odd = LINE.format("").replace("2.5000 · ppl 8.00", "nan · ppl inf").replace("1:02:03", "?")
    assert screen.stream.getvalue() == (
        LINE.format("")
        + LINE.format(" · skipped 3")
        + odd
        + "validation at step 1,500 · loss 2.25 · bleu 31.46 · best so far\n"
        + "validation at step 1,600 · loss 2.50\n"
        + "as it is\n"
    )


def test_a_terminal_has_a_bar_and_the_same_lines_above_it(tmp_path):
    screen = Screen(tmp_path, Terminal(), start=40)
    with screen as telemetry:
        telemetry.step(math.log(8))
        telemetry.training(1500, REPORT)
        telemetry.rewind(10)
    shown = screen.stream.getvalue()
    assert LINE.format("") in shown
    assert "40/100000" in shown
    assert "ppl 8.00" in shown
    assert "10/100000" in shown.rpartition("\r")[2]


def test_the_log_and_the_board_have_every_number(tmp_path):
    screen = Screen(tmp_path, io.StringIO())
    with screen as telemetry:
        telemetry.training(1500, REPORT)
        telemetry.validation(1500, {"loss": 2.25, "bleu": 31.456}, best=True)
    assert screen.lines() == [
        {"step": 1500, "kind": "train", **REPORT},
        {"step": 1500, "kind": "valid", "loss": 2.25, "bleu": 31.456},
    ]
    shown = {(tag, step): value for tag, step, value in seen(tmp_path / "board")}
    for name, value in REPORT.items():
        assert shown[f"train/{name}", 1500] == pytest.approx(value)
    assert shown["valid/bleu", 1500] == pytest.approx(31.456)


def test_rewinding_forgets_later_lines(tmp_path):
    screen = Screen(tmp_path, io.StringIO())
    with screen as telemetry:
        for step in (100, 200, 300):
            telemetry.training(step, REPORT)
        telemetry.rewind(200)
        telemetry.training(250, REPORT)
    assert [line["step"] for line in screen.lines()] == [100, 200, 250]
    shown = [step for tag, step, _ in seen(tmp_path / "board") if tag == "train/loss"]
    assert shown == [100, 200, 250]


def test_a_board_that_cannot_be_written_is_said_once(tmp_path):
    (tmp_path / "board").write_text("a file where the folder would be")
    screen = Screen(tmp_path, io.StringIO())
    with screen as telemetry:
        for step in (100, 200):
            telemetry.training(step, REPORT)
        telemetry.rewind(100)
    assert screen.stream.getvalue().count("board: cannot be written: File exists; until") == 1
    assert [line["step"] for line in screen.lines()] == [100]


@pytest.mark.parametrize(
    ("nll", "value"),
    [(0.0, 1.0), (math.log(7), 7.0), (1e4, math.inf), (math.inf, math.inf), (math.nan, math.nan)],
)
def test_perplexity(nll, value):
    assert perplexity(nll) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0:00:00"),
        (59.6, "0:01:00"),
        (3723, "1:02:03"),
        (90_000, "1 day, 1:00:00"),
        (math.inf, "?"),
        (math.nan, "?"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


# --- TensorBoard's event files --------------------------------------------------------------------


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
    board = Board(tmp_path / "board", after=0)
    for step in range(1, 51):
        board.show(step, {"train/loss": 0.5 * step, "train/skipped": 0})
        assert seen(tmp_path / "board")[-2:] == [
            ("train/loss", step, 0.5 * step),
            ("train/skipped", step, 0.0),
        ]
    board.close()


def test_a_file_begins_as_readers_want_it(tmp_path: Path) -> None:
    board = Board(tmp_path, after=7)
    assert list(tmp_path.iterdir()) == [], "a run that reports nothing leaves nothing"
    board.show(8, {"loss": 1.0})
    board.close()
    version, start, _ = events(tmp_path)
    assert version.file_version == "brain.Event:2"
    assert start.session_log.status == SessionLog.START and start.step == 8
    assert version.wall_time > 1.6e9


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
    assert seen(tmp_path) == [
        ("loss", 2, 2.0),
        ("loss", 4, 40.0),
        ("loss", 6, 60.0),
        ("loss", 8, 80.0),
    ]


def test_writers_of_one_second_empty_no_file_of_another(tmp_path: Path) -> None:
    for step in range(1, 13):
        board = Board(tmp_path, after=step - 1)
        board.show(step, {"loss": 1.0})
        board.close()
    assert [step for _, step, _ in seen(tmp_path)] == list(range(1, 13))
