"""The stream of batches: resumable at every position, and its thread never outlives or hangs it."""

import gc
import itertools
import multiprocessing
import os
import signal
import threading
import time
import types

import numpy as np
import pytest

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data import pipeline, planner
from flaxformer_mt.data.batch import Batch, Share
from flaxformer_mt.data.pipeline import Batches, Position, WorkerError, exchanged_pass, one_pass
from flaxformer_mt.data.plan import PlanError
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.data.store import Store
from tests.data.pairs import in_memory
from tests.data.test_store import write

CONFIG = BatchConfig(tokens=120, max_shapes=4, multiple=2)
SEED = 7
START = Position()


# Pairs whose first token tells which they are; of every epoch they are one window.
_LENGTHS = np.random.default_rng(0).integers(1, 15, (90, 2)).tolist()
PAIRS = in_memory(
    [[100 + i, *[5] * n] for i, (n, _) in enumerate(_LENGTHS)],
    [[100 + i, *[6] * m] for i, (_, m) in enumerate(_LENGTHS)],
)
PLANNER = Planner(PAIRS, CONFIG, SEED)
SIZE = len(PLANNER.window(0, 0).plan)


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    for attempt in range(3000):
        if not [t for t in threading.enumerate() if t.name.startswith(("grain-thread", "plan"))]:
            return
        if attempt == 50:  # Not at once: in a process that has run many tests it takes seconds.
            gc.collect()
        time.sleep(0.02)
    pytest.fail("a thread of a closed stream is still running")


def ids(batch: Batch) -> list[int]:
    return [int(token) for token in batch.src[:, 0] if token]


def same(one: Batch, other: Batch) -> bool:
    return all(np.array_equal(array, vars(other)[name]) for name, array in vars(one).items())


def take(count: int, position: Position = START) -> list[tuple[Batch, Position]]:
    with Batches(PLANNER, position) as batches:
        return list(itertools.islice(batches, count))


@pytest.fixture(scope="module")
def two_epochs():
    """Batches of two epochs and of the beginning of a third, with the position after each."""
    return take(2 * SIZE + 2)


@pytest.fixture(scope="module")
def starts(two_epochs):
    """The position before each batch."""
    return [START, *(position for _, position in two_epochs)]


def test_each_epoch_has_every_pair_once_in_another_order(two_epochs):
    epochs = [[ids(batch) for batch, _ in two_epochs[n * SIZE : (n + 1) * SIZE]] for n in (0, 1)]
    assert all(sorted(itertools.chain(*epoch)) == list(range(100, 190)) for epoch in epochs)
    assert epochs[0] != epochs[1] and SIZE > 8


def test_resuming_gives_the_same_batches(two_epochs, starts):
    for number in range(2 * SIZE):
        for offset, (batch, after) in enumerate(take(2, starts[number])):
            assert same(batch, two_epochs[number + offset][0])
            assert after == two_epochs[number + offset][1]


def test_the_end_of_an_epoch_is_the_beginning_of_the_next(two_epochs):
    expected = [Position(0, 0, SIZE - 1), Position(1, 0, 0), Position(1, 0, 1)]
    assert [position for _, position in two_epochs[SIZE - 2 : SIZE + 1]] == expected
    assert same(take(1, Position(3, 0, SIZE))[0][0], take(1, Position(4, 0, 0))[0][0])


def test_batches_that_are_left_out_never_come(two_epochs, starts):
    left_out = {starts[0], starts[2], starts[3], starts[SIZE - 1], starts[SIZE]}
    expected = [two_epochs[i][0] for i in range(2 * SIZE) if starts[i] not in left_out]
    with Batches(PLANNER, skip=left_out) as batches:
        for batch in expected:
            got, after = next(batches)
            assert same(got, batch)
            assert batches.delivered not in left_out and batches.delivered < after


@pytest.mark.parametrize(
    "position",
    [Position(0, 0, 10_000), Position(0, 0, -1), Position(-1), Position(0, 1), Position(0, -1)],
)
def test_positions_outside_the_plan_are_errors(position):
    message = r"Position\(epoch=.* lies outside (a window of \d+ batches|an epoch of 1 windows)"
    with Batches(PLANNER, position) as batches, pytest.raises(PlanError, match=message):
        next(batches)


def test_batches_stand_ready_within_a_bound_and_an_error_is_raised_by_next(monkeypatch):
    def fail(*args):
        if (number := next(assembled)) == broken:
            raise OSError("the disk is gone")
        done.append(number)
        return real(*args)

    assembled, done, broken, real = itertools.count(), list[int](), 20, planner.assemble
    monkeypatch.setattr(planner, "assemble", fail)
    batches = Batches(PLANNER)
    next(batches)
    time.sleep(0.5)
    assert 2 <= len(done) <= 12
    for _ in range(broken - 1):
        next(batches)
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)


def test_the_shape_that_is_compiled_ahead_has_the_rows_of_all_processes():
    with Batches(PLANNER) as of_all, Batches(PLANNER, share=Share((1,), 2)) as part:
        assert part.shape_ahead() == of_all.shape_ahead() == next(of_all)[0].shape


def test_closing_or_dropping_the_stream_ends_the_thread():
    dropped, closed = (Batches(PLANNER) for _ in range(2))
    next(dropped)
    next(closed)
    closed.close()
    closed.close()
    del dropped  # the fixture waits for both threads


def test_waiting_for_data_and_epochs_are_told(monkeypatch):
    # A clock that moves by one at each look.
    clock = types.SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr(pipeline, "time", clock)
    with Batches(PLANNER, Position(2, 0, SIZE // 2)) as batches:
        for done in range(4):
            assert batches.seconds_waited == done
            next(batches)
            assert batches.epochs_done == 2 + (SIZE // 2 + done + 1) / SIZE


def test_exchanged_sources_are_of_the_pair_before_in_the_batch():
    """Also over the border between two processes' rows."""
    usual = list(one_pass(PAIRS, CONFIG))
    exchanged = dict(exchanged_pass(PAIRS, CONFIG, most=3))
    assert len(usual) > 4 and [*exchanged] == [0, round((len(usual) - 1) / 2), len(usual) - 1]
    for place, batch in exchanged.items():
        original = usual[place]
        filled = original.sentences
        for side in ("src", "src_segment_ids", "src_positions"):
            before, after = getattr(original, side), getattr(batch, side)
            np.testing.assert_array_equal(after[:filled], np.roll(before[:filled], 1, axis=0))
            np.testing.assert_array_equal(after[filled:], before[filled:])
        for side in ("tgt_in", "tgt_out", "tgt_segment_ids", "tgt_positions"):
            np.testing.assert_array_equal(getattr(batch, side), getattr(original, side))
    halves = [dict(exchanged_pass(PAIRS, CONFIG, most=3, share=Share((n,), 2))) for n in range(2)]
    for place, batch in exchanged.items():
        joined = np.concatenate([half[place].src for half in halves])
        np.testing.assert_array_equal(joined, batch.src)

    # Batches of one pair are not exchanged.
    rows = [[5 + n] * length for n, length in enumerate((3, 20, 20, 40, 40, 60))]
    pairs, config = in_memory(rows, rows), BatchConfig(tokens=64, multiple=1)
    sizes = [int(batch.sentences) for batch in one_pass(pairs, config)]
    several = [place for place, size in enumerate(sizes) if size > 1]
    assert [*dict(exchanged_pass(pairs, config, most=4))] == several != [*range(len(sizes))]


@pytest.mark.extended
def test_workers_give_the_same_stream_and_their_death_is_reported(tmp_path):
    pairs = Store.open(write(tmp_path / "data")).train
    with Batches(Planner(pairs, CONFIG, SEED)) as batches:
        expected = list(itertools.islice(batches, 7))
    batches = Batches(Planner(pairs, CONFIG, SEED), workers=2)
    for (batch, position), (given_batch, given_position) in zip(expected, batches, strict=False):
        assert same(batch, given_batch) and position == given_position
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    os.kill(workers[0].pid or 0, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"worker died: .*exit code -9.*lower data\.workers"):
        for _ in range(100):
            next(batches)
    while multiprocessing.active_children():
        time.sleep(0.1)
