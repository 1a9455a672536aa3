"""Processes go on from one step: where a file system shows them different ones, they wait."""

import zlib

import numpy as np
import pytest

from flaxformer_mt.rundir import CheckpointError, checkpoint_format as module
from flaxformer_mt.rundir.checkpoint_format import listed_alike


@pytest.mark.parametrize(
    ("ours", "theirs", "asked"),
    [
        ([[10, 20]], [[10, 20]], 1),
        ([[10, 20]], [[10], [10], [10, 20]], 3),
        ([[], [10], [10, 20]], [[10, 20]], 3),
        ([[10, 20]], [[]], module._PATIENCE),
    ],
)
def test_whoever_sees_another_folder_looks_again(monkeypatch, tmp_path, ours, theirs, asked):
    """What each of two processes lists, call by call, and how often they compare it."""
    views, answers = iter(ours), []

    def compare(mine: np.ndarray) -> np.ndarray:
        listed = theirs[min(len(answers), len(theirs) - 1)]
        answers.append(listed)
        return np.stack([mine, np.int32(zlib.crc32(str(listed).encode()) >> 1)])

    monkeypatch.setattr(module.jax, "process_count", lambda: 2)
    monkeypatch.setattr(module.multihost_utils, "process_allgather", compare)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    if theirs == [[]]:
        with pytest.raises(CheckpointError, match=r"hosts see different.*here 10, 20.: check how"):
            listed_alike(tmp_path, lambda _: next(views, [10, 20]))
    else:
        assert listed_alike(tmp_path, lambda _: next(views, [10, 20])) == [10, 20]
    assert len(answers) == asked
