"""Work by threads and processes: in order, how many, how to start them, and that they end."""

import collections
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from multiprocessing import connection, resource_tracker
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


def mapped(submit: Callable[[S], Future[T]], items: Iterable[S], *, ahead: int) -> Iterator[T]:
    """`map` by an executor's threads or processes, with `ahead` items under way."""
    under_way = collections.deque[Future[T]]()
    for item in items:
        under_way.append(submit(item))
        if len(under_way) == ahead:
            yield under_way.popleft().result()
    yield from (one.result() for one in under_way)


@contextlib.contextmanager
def signals_held_back(*kinds: signal.Signals) -> Iterator[None]:
    """Processes started inside never get these signals, such as a group's; this one's wait."""
    # Its start would end the blocking below.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, kinds)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def end_with_parent(*_: int) -> None:
    """In a worker process: it ends when its parent does, however that ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(parent: int) -> None:
    # A worker waits on a pipe and holds both its ends: it would never see a dead parent.
    connection.wait([parent])
    os._exit(1)
