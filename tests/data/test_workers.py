"""Worker processes: the same stream as the thread's, and their death is an error, not a wait."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from flaxformer_mt.data.pipeline import Batches, WorkerError
from flaxformer_mt.data.store import Store
from tests.data.test_pipeline import CONFIG, SEED, same
from tests.data.test_store import write


@pytest.mark.extended
def test_workers_give_the_same_stream_and_their_death_is_reported(tmp_path: Path) -> None:
    pairs = Store.open(write(tmp_path / "data")).train
    with Batches(pairs, CONFIG, SEED) as batches:
        expected = list(itertools.islice(batches, 7))
    batches = Batches(pairs, CONFIG, SEED, workers=2)
    for (batch, position), (given_batch, given_position) in zip(expected, batches, strict=False):
        assert same(batch, given_batch) and position == given_position
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    os.kill(workers[0].pid or 0, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"has died: .*exit code -9.*lower data\.workers"):
        for _ in range(100):
            next(batches)
    while multiprocessing.active_children():
        time.sleep(0.1)
