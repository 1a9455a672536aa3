"""TensorBoard's event files: whole when a report has been shown, and nothing told twice."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog

from flaxformer_mt.training.board import Board


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
