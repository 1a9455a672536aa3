"""Processes go on from one step: where a file system shows them different ones, they wait."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from flaxformer_mt.rundir import CheckpointError, checkpoint_format
from flaxformer_mt.rundir.checkpoint_format import listed_alike


class Other:
    """The second of two processes, as the first one meets it: what it lists, call by call."""

    def __init__(self, *lists: list[int]) -> None:
        self.lists, self.asked = list(lists), 0

    def process_allgather(self, mine: np.ndarray) -> np.ndarray:
        listed = self.lists[min(self.asked, len(self.lists) - 1)]
        self.asked += 1
        return np.stack([mine, np.int32(zlib.crc32(str(listed).encode()) >> 1)])


@pytest.fixture
def beside(monkeypatch):
    """Makes this process one of two, the other as given, and time pass at once."""

    def make(other: Other) -> Other:
        monkeypatch.setattr(checkpoint_format.jax, "process_count", lambda: 2)
        monkeypatch.setattr(
            checkpoint_format.multihost_utils, "process_allgather", other.process_allgather
        )
        monkeypatch.setattr(checkpoint_format.time, "sleep", lambda _: None)
        return other

    return make


def test_alone_nobody_is_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(
        checkpoint_format.multihost_utils, "process_allgather", lambda _: pytest.fail("asked")
    )
    assert listed_alike(tmp_path, lambda _: [10, 20]) == [10, 20]


@pytest.mark.parametrize(
    ("ours", "theirs", "asked"),
    [
        ([[10, 20]], [[10, 20]], 1),
        ([[10, 20]], [[10], [10], [10, 20]], 3),
        ([[], [10], [10, 20]], [[10, 20]], 3),
    ],
)
def test_whoever_sees_an_older_folder_looks_again(beside, tmp_path, ours, theirs, asked):
    other, views = beside(Other(*theirs)), iter(ours)
    listed = listed_alike(tmp_path, lambda _: next(views, [10, 20]))
    assert (listed, other.asked) == ([10, 20], asked)


def test_folders_that_are_not_one_are_an_error(beside, tmp_path):
    other = beside(Other([]))
    with pytest.raises(CheckpointError, match=r"not every host sees.*sees 10, 20\. All need one"):
        listed_alike(tmp_path, lambda _: [10, 20])
    assert other.asked == checkpoint_format._PATIENCE
