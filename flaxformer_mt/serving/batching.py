"""Many requests, one model: a thread takes waiting items in batches, which grow with the load.

Requests take turns sentence by sentence, so a long document delays a short question only by its
share.
"""

import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from flaxformer_mt.serving.access import unavailable

# Called with each batch's numbers of items and requests, seconds, and failure.
Report = Callable[[int, int, float, Exception | None], None]


@dataclasses.dataclass(eq=False)
class _Ticket:
    key: Hashable
    items: Sequence[Any]
    future: asyncio.Future[list[Any]]
    results: list[Any] = dataclasses.field(default_factory=list)  # in order
    taken: int = 0

    @property
    def waiting(self) -> int:
        """How many of its items aren't in a batch yet."""
        return len(self.items) - self.taken


_Item = tuple[_Ticket, Any]


class Batcher:
    """Items with the same key are computed together by `run(key, items)` in one thread.

    All methods belong to the event loop. Whenever nothing waits, the thread does a step of
    `prepare`, until it returns False; then `prepared` is called. If `run` fails for a batch of
    several requests, each is tried separately, so that one can't spoil the others. `failed` is
    called with the error that ended the thread's work early: one of `prepare`, or one such as
    SystemExit.
    """

    def __init__(
        self,
        run: Callable[[Any, list[Any]], Sequence[Any]],
        *,
        take: Callable[[Any, int], int],
        capacity: int,
        prepare: Callable[[], bool] = lambda: False,
        prepared: Callable[[], None] = lambda: None,
        failed: Callable[[BaseException], None] = lambda _: None,
        report: Report = lambda *_: None,
    ) -> None:
        """`take(key, waiting)` sizes the next batch; `capacity` items may wait."""
        self._run, self._report = run, report
        self._prepare, self._prepared, self._failed = prepare, prepared, failed
        self._take, self._capacity = take, capacity
        self._queue: deque[_Ticket] = deque()
        self._unanswered: set[asyncio.Future[list[Any]]] = set()
        self._changed = asyncio.Event()
        self._seconds_per_item = 0.05  # an initial guess
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._call: Future[Any] | None = None
        self._work: asyncio.Task[None] | None = None
        self.warm = self.closed = self._preparing = False

    def start(self) -> None:
        """Begins to answer; once `prepare` is done, it is `warm`."""
        self._work = asyncio.create_task(self._compute_all())

    @property
    def waiting(self) -> int:
        """How many items wait, without those of abandoned requests."""
        return sum(ticket.waiting for ticket in self._queue if not ticket.future.done())

    @property
    def only_preparing(self) -> bool:
        """Whether the thread prepares and nobody waits for an answer."""
        return self._preparing and not self._unanswered

    @property
    def at_work(self) -> bool:
        """Whether the thread computes: nothing can interrupt it."""
        return self._call is not None and not self._call.done()

    async def close(self) -> None:
        """Accepts no more requests, and returns when accepted ones have their results."""
        self.closed = True
        self._changed.set()
        if self._work is not None:
            await asyncio.shield(self._work)

    def submit(self, key: Hashable, items: Sequence[Any]) -> asyncio.Future[list[Any]]:
        """Accepts the items; the future gets their results in order. Cancelling it withdraws them.

        Raises Refusal if the queue is full or closed. The future gets what `run` raises for this
        request's items, or a RuntimeError if the thread's work has ended.
        """
        if self.closed:
            raise unavailable("the server is stopping", retry_after=5, reason="stopping")
        waiting = self.waiting
        if waiting + len(items) > self._capacity:
            seconds = max(1, min(60, round(waiting * self._seconds_per_item)))
            raise unavailable(
                f"the queue is full; try again in {seconds} s", retry_after=seconds, reason="queue"
            )

        ticket = _Ticket(key, items, asyncio.get_running_loop().create_future())
        if not items:
            ticket.future.set_result([])
            return ticket.future
        self._unanswered.add(ticket.future)
        ticket.future.add_done_callback(self._unanswered.discard)
        self._queue.append(ticket)
        self._changed.set()
        return ticket.future

    async def _compute_all(self) -> None:
        try:
            while batch := await self._next():
                await self._compute(batch)
        except asyncio.CancelledError:
            raise
        # Not only Exceptions: otherwise all requests would wait forever.
        except BaseException as error:
            self.closed = True
            self._queue.clear()
            for future in list(self._unanswered):
                if not future.done():
                    future.set_exception(RuntimeError(f"the model stopped: {type(error).__name__}"))
            self._failed(error)
        finally:
            self._thread.shutdown(wait=False)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self._call = self._thread.submit(function, *arguments)
        return await asyncio.wrap_future(self._call)

    async def _next(self) -> list[_Item]:
        """The next batch, once there is one; empty if the queue is closed and nothing waits."""
        while True:
            self._queue = deque(ticket for ticket in self._queue if not ticket.future.done())
            if self._queue:
                return self._take_batch()
            if self.closed:
                return []
            if self.warm:
                self._changed.clear()
                await self._changed.wait()
            else:
                await self._prepare_once()

    async def _prepare_once(self) -> None:
        self._preparing = True
        self.warm = not await self._in_thread(self._prepare)
        self._preparing = False
        if self.warm:
            self._prepared()

    def _take_batch(self) -> list[_Item]:
        """Takes items with the first ticket's key, one from each ticket in turn."""
        queue = self._queue
        key = queue[0].key
        size = self._take(key, sum(ticket.waiting for ticket in queue if ticket.key == key))
        batch: list[_Item] = []
        passed_over: list[_Ticket] = []
        while queue and len(batch) < size:
            ticket = queue.popleft()
            if ticket.key != key:
                passed_over.append(ticket)
                continue
            batch.append((ticket, ticket.items[ticket.taken]))
            ticket.taken += 1
            if ticket.waiting:
                queue.append(ticket)
        queue.extendleft(reversed(passed_over))
        return batch

    async def _compute(self, batch: list[_Item]) -> None:
        start = time.perf_counter()
        outcomes, failure = await self._in_thread(self._outcomes, batch)
        seconds = time.perf_counter() - start
        self._seconds_per_item += 0.1 * (seconds / len(batch) - self._seconds_per_item)
        for (ticket, _), outcome in zip(batch, outcomes, strict=True):
            if ticket.future.done():  # cancelled, or failed before
                continue
            if isinstance(outcome, Exception):
                ticket.future.set_exception(outcome)
                continue
            ticket.results.append(outcome)  # a request's items are taken in order
            if len(ticket.results) == len(ticket.items):
                ticket.future.set_result(ticket.results)
        self._report(len(batch), len({id(ticket) for ticket, _ in batch}), seconds, failure)

    def _outcomes(self, batch: list[_Item]) -> tuple[list[Any], Exception | None]:
        """A result or exception for each item, and the batch's failure if any item failed."""
        try:
            return list(self._run(batch[0][0].key, [item for _, item in batch])), None
        except Exception as error:
            failure = error
        tickets = dict.fromkeys(ticket for ticket, _ in batch)
        if len(tickets) == 1:
            return [failure] * len(batch), failure

        # Each request by itself.
        outcomes_of = {}
        for ticket in tickets:
            outcomes, _ = self._outcomes([item for item in batch if item[0] is ticket])
            outcomes_of[ticket] = iter(outcomes)
        in_order = [next(outcomes_of[ticket]) for ticket, _ in batch]
        # If every request succeeded separately, nobody has noticed a failure.
        any_failed = any(isinstance(outcome, Exception) for outcome in in_order)
        return in_order, failure if any_failed else None
