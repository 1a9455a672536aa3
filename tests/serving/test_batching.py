"""The queue before the model: sharing, fairness, bounds, failures, cancellation, closing."""

import asyncio
import threading

import pytest

from flaxformer_mt.serving.access import Refusal
from flaxformer_mt.serving.batching import Batcher


class Model:
    """Doubles its items when it may; "bad" items break the batch."""

    def __init__(self):
        self.batches, self.reports = [], []
        self.may = threading.Semaphore(0)
        self.begun = 0

    def run(self, key, items):
        self.begun += 1
        assert self.may.acquire(timeout=60)
        self.batches.append((key, list(items)))
        if "bad" in items or ("alone" in items and len(items) > 1):
            raise RuntimeError("bad")
        return [item * 2 for item in items]

    def go(self, batches=1000):
        self.may.release(batches)


def batched(test):
    """A test with a batcher whose model is at work, and computes when the test lets it."""

    async def main():
        model = Model()
        batcher = Batcher(
            model.run,
            take=lambda _, waiting: min(4, waiting),
            capacity=100,
            report=lambda *report: model.reports.append(report),
        )
        batcher.start()
        # A first batch under way, so that what follows has to wait.
        first = batcher.submit("first", [0])
        await until(lambda: model.begun == 1)
        assert batcher.waiting == 0
        await test(batcher, model)
        model.go()
        await batcher.close()
        assert await first == [0]

    return lambda: asyncio.run(asyncio.wait_for(main(), 120))


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def waiting(batcher, *requests):
    return [batcher.submit(key, items) for key, items in requests]


@batched
async def test_requests_share_batches_and_get_their_own_results(batcher, model):
    tasks = waiting(batcher, *(("key", [number]) for number in range(6)))
    assert batcher.waiting == 6
    model.go()
    assert await asyncio.gather(*tasks) == [[0], [2], [4], [6], [8], [10]]
    assert [items for _, items in model.batches] == [[0], [0, 1, 2, 3], [4, 5]]
    assert [report[:2] for report in model.reports] == [(1, 1), (4, 4), (2, 2)]


@batched
async def test_requests_take_turns_sentence_by_sentence(batcher, model):
    long, short = waiting(batcher, ("key", list(range(20))), ("key", [100]))
    model.go(2)
    assert await short == [200]  # in the first batch, with three of the long one
    assert model.batches[1][1] == [0, 100, 1, 2]
    model.go()
    assert await long == [2 * number for number in range(20)]


@batched
async def test_only_items_of_one_key_are_computed_together_in_turn(batcher, model):
    tasks = waiting(batcher, ("a", [1]), ("b", [2]), ("a", [3]), ("b", [4]), ("c", [5]))
    model.go()
    assert await asyncio.gather(*tasks) == [[2], [4], [6], [8], [10]]
    assert model.batches[1:] == [("a", [1, 3]), ("b", [2, 4]), ("c", [5])]


@batched
async def test_a_full_queue_refuses_whole_requests_and_recovers(batcher, model):
    tasks = waiting(batcher, ("key", [1] * 98), ("key", [4]))
    with pytest.raises(Refusal, match="the queue is full") as full:
        await batcher.submit("key", [5, 6])
    assert int(full.value.headers["retry-after"]) >= 1
    tasks += waiting(batcher, ("key", [7]))  # the last place
    model.go()
    assert await asyncio.gather(*tasks) == [[2] * 98, [8], [14]]
    assert await batcher.submit("key", [8]) == [16]


@batched
async def test_one_failing_request_does_not_fail_its_neighbours(batcher, model):
    tasks = waiting(batcher, ("key", [1]), ("key", ["bad"]), ("key", [3]))
    model.go()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[0] == [2] and results[2] == [6]
    assert isinstance(results[1], RuntimeError)
    assert [report[-1] is None for report in model.reports] == [True, False]


@batched
async def test_a_batch_that_fails_and_leaves_nobody_unanswered_is_no_failure(batcher, model):
    """Too large together, as where memory runs out, and answered one by one."""
    tasks = waiting(batcher, ("key", [1]), ("key", ["alone"]), ("key", [3]))
    model.go()
    assert await asyncio.gather(*tasks) == [[2], ["alonealone"], [6]]
    assert [report[-1] for report in model.reports] == [None, None]


@batched
async def test_a_failure_withdraws_the_rest_of_its_request(batcher, model):
    (task,) = waiting(batcher, ("key", ["bad", *range(50)]))
    model.go()
    with pytest.raises(RuntimeError):
        await task
    assert batcher.waiting == 0
    assert await batcher.submit("key", [1]) == [2]
    assert len(model.batches) == 3


@batched
async def test_who_is_cancelled_while_being_computed_disturbs_nobody(batcher, model):
    leaving, staying = waiting(batcher, ("key", [1] * 6), ("key", [2]))
    model.go(1)
    await until(lambda: batcher.waiting == 3)  # four of seven are with the model
    leaving.cancel()
    model.go()
    assert await staying == [4]
    await until(lambda: batcher.waiting == 0)


@batched
async def test_closing_answers_what_was_taken_and_takes_no_more(batcher, model):
    tasks = waiting(batcher, ("key", [1] * 9), ("other", [2]))
    for _ in range(2):  # who gives up waiting for the end does not undo it
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(batcher.close(), 0.01)
    with pytest.raises(Refusal, match="stopping"):
        await batcher.submit("key", [3])
    model.go()
    await batcher.close()
    assert await asyncio.gather(*tasks) == [[2] * 9, [4]]


@pytest.mark.parametrize("ended", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_ends_the_thread_fails_all_who_wait_and_is_told(ended):
    async def main():
        may, said = threading.Event(), []

        def broken(key, items):
            assert may.wait(20)
            raise ended

        batcher = Batcher(
            broken, take=lambda _, waiting: min(2, waiting), capacity=9, failed=said.append
        )
        batcher.start()
        tasks = waiting(batcher, ("a", [1, 2, 3]), ("b", [4]))
        may.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [RuntimeError, RuntimeError]
        assert said == [ended] and batcher.waiting == 0 and batcher.closed
        with pytest.raises(Refusal):
            await batcher.submit("a", [1])
        await batcher.close()

    asyncio.run(asyncio.wait_for(main(), 120))
