"""Many requests, one model: what waits is put together into batches that a thread computes.

No request waits for others to come: the thread takes whatever is there when it is free, so a batch
grows with the load. Requests take turns sentence by sentence, so that a long document delays a
short question by its share and not by its length.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any

Run = Callable[[Any, list[Any]], Sequence[Any]]


class QueueFull(Exception):
    """No room for a request's items now; `retry_after` is a guess in whole seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after} s")
        self.retry_after = retry_after


class NotServing(Exception):
    """The thread is not ready yet, or it takes no more."""


class ModelEnded(Exception):
    """The thread has ended while a request was with it or waited for it."""


@dataclasses.dataclass(frozen=True)
class BatchReport:
    """One batch that was computed: how many items, in how many seconds, and its failure."""

    items: int
    requests: int
    seconds: float
    error: Exception | None


@dataclasses.dataclass(eq=False)
class _Ticket:
    """One request: its items, of which those from `taken` on still wait."""

    key: Hashable
    items: Sequence[Any]
    future: asyncio.Future[list[Any]]
    results: list[Any]
    taken: int = 0
    missing: int = 0


Share = tuple[_Ticket, int]  # item number of a ticket


class Batcher:
    """Items of the same key are computed together by `run(key, items)` in one thread of its own.

    `prepare` is called in that thread before anything else, then `prepared` in the event loop,
    which all methods belong to. If `run` raises an Exception for a batch of several requests, each
    is tried alone, so that one cannot spoil the others'. `report` is called for each batch, in the
    event loop; so is `failed`, with what ended the thread before its time: an Exception of
    `prepare`, or what is no Exception, such as SystemExit.
    """

    def __init__(
        self,
        run: Run,
        *,
        take: Callable[[Any, int], int],
        capacity: int,
        prepare: Callable[[], None] = lambda: None,
        prepared: Callable[[], None] = lambda: None,
        failed: Callable[[BaseException], None] = lambda _: None,
        report: Callable[[BatchReport], None] = lambda _: None,
    ) -> None:
        """`take(key, waiting)` is how many of so many items that wait make the next batch.

        `capacity` is how many may wait.
        """
        self._run, self._report = run, report
        self._prepare, self._prepared, self._failed = prepare, prepared, failed
        self._take, self._capacity = take, capacity
        self._changed = threading.Condition()
        self._queue: collections.deque[_Ticket] = collections.deque()
        self._unanswered: set[_Ticket] = set()
        self._open = False
        self._seconds_per_item = 0.05  # a guess until there is experience
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Future[None] | None = None
        self.ready = False
        self.waiting = 0  # items

    def start(self) -> None:
        """Begins; requests are taken once `prepare` is done (`ready`)."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._open = True
        # A daemon, so that a model that hangs cannot keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    @property
    def at_work(self) -> bool:
        """Whether the thread still runs."""
        return self._thread is not None and self._thread.is_alive()

    async def close(self) -> None:
        """Takes no more requests, and returns when those that were taken have their results."""
        with self._changed:
            self._open = False
            self._changed.notify()
        if self._ended is not None:
            await asyncio.shield(self._ended)
        if self._thread is not None:
            self._thread.join()  # it has said its last word

    def submit(self, key: Hashable, items: Sequence[Any]) -> Coroutine[Any, Any, list[Any]]:
        """Accepts the items at once; the coroutine, which is to be awaited, has their results.

        They are in order. Cancelled, it withdraws the items that still wait. Raises QueueFull and
        NotServing; the coroutine ModelEnded, and what `run` raises for this request's items alone.
        """
        ticket = _Ticket(key, items, self._loop.create_future(), [None] * len(items))
        ticket.missing = len(items)
        if not items:
            ticket.future.set_result([])
            return self._results_of(ticket)
        with self._changed:
            if not self._open or not self.ready:
                raise NotServing("the server is stopping" if self.ready else "the model is loading")
            if self.waiting + len(items) > self._capacity:
                seconds = self.waiting * self._seconds_per_item
                raise QueueFull(max(1, min(60, round(seconds))))
            self.waiting += len(items)
            self._queue.append(ticket)
            self._changed.notify()
        self._unanswered.add(ticket)
        return self._results_of(ticket)

    async def _results_of(self, ticket: _Ticket) -> list[Any]:
        try:
            return await ticket.future
        except asyncio.CancelledError:
            self._withdraw(ticket)
            raise
        finally:
            self._unanswered.discard(ticket)

    def _withdraw(self, ticket: _Ticket) -> None:
        with self._changed:
            if ticket in self._queue:
                self._queue.remove(ticket)
                self.waiting -= len(ticket.items) - ticket.taken

    # --- in the thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._prepare()
            self.ready = True
            self._call(self._prepared)
            while shares := self._next():
                self._compute(shares)
        # What is no Exception as well: a thread that ends unseen leaves all requests waiting.
        except BaseException as error:
            self.ready = False
            self._call(self._break_off, error)
        self._call(self._end)

    def _next(self) -> list[Share]:
        """The next batch, once there is something; empty when all is done and no more comes."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or not self._open)
            if not self._queue:
                return []
            key = self._queue[0].key
            same = sum(len(t.items) - t.taken for t in self._queue if t.key == key)
            room = self._take(key, same)
            shares: list[Share] = []
            others: list[_Ticket] = []
            while self._queue and len(shares) < room:
                ticket = self._queue.popleft()
                if ticket.key != key:
                    others.append(ticket)
                    continue
                shares.append((ticket, ticket.taken))
                ticket.taken += 1
                if ticket.taken < len(ticket.items):
                    self._queue.append(ticket)
            self._queue.extendleft(reversed(others))
            self.waiting -= len(shares)
            return shares

    def _compute(self, shares: list[Share]) -> None:
        start = time.perf_counter()
        outcomes, failure = self._outcomes(shares)
        seconds = time.perf_counter() - start
        self._seconds_per_item += 0.1 * (seconds / len(shares) - self._seconds_per_item)
        requests = len({id(ticket) for ticket, _ in shares})
        report = BatchReport(len(shares), requests, seconds, failure)
        self._call(self._deliver, shares, outcomes, report)

    def _outcomes(self, shares: list[Share]) -> tuple[list[Any], Exception | None]:
        """A result or an exception for each item, and why the batch failed if any item did."""
        try:
            return self._results(shares), None
        except Exception as error:
            failure = error
        tickets = {id(ticket): ticket for ticket, _ in shares}
        if len(tickets) == 1:
            self._withdraw(shares[0][0])
            return [failure] * len(shares), failure
        outcomes: list[Any] = [None] * len(shares)
        for ticket in tickets.values():
            mine = [place for place, share in enumerate(shares) if share[0] is ticket]
            try:
                results: Sequence[Any] = self._results([shares[place] for place in mine])
            except Exception as error:
                self._withdraw(ticket)
                results = [error] * len(mine)
            for place, result in zip(mine, results, strict=True):
                outcomes[place] = result
        # Each alone, all may have been answered: then nothing has failed that anybody knows of.
        lost = any(isinstance(outcome, Exception) for outcome in outcomes)
        return outcomes, failure if lost else None

    def _results(self, shares: list[Share]) -> list[Any]:
        items = [ticket.items[number] for ticket, number in shares]
        results = list(self._run(shares[0][0].key, items))
        if len(results) != len(items):
            raise RuntimeError(f"{len(items)} items have {len(results)} results")
        return results

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    # --- in the event loop ------------------------------------------------------------------------

    def _deliver(self, shares: list[Share], outcomes: list[Any], report: BatchReport) -> None:
        for (ticket, number), outcome in zip(shares, outcomes, strict=True):
            if ticket.future.done():  # cancelled, or failed before
                continue
            if isinstance(outcome, Exception):
                ticket.future.set_exception(outcome)
                continue
            ticket.results[number] = outcome
            ticket.missing -= 1
            if ticket.missing == 0:
                ticket.future.set_result(ticket.results)
        self._report(report)

    def _break_off(self, error: BaseException) -> None:
        with self._changed:
            self._open = False
            self._queue.clear()
            self.waiting = 0
        for ticket in self._unanswered:
            if not ticket.future.done():
                ticket.future.set_exception(ModelEnded(type(error).__name__))
        self._failed(error)

    def _end(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)
