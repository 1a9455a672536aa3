"""Threads and processes: maps in order, counts processors, starts and ends worker processes."""

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


def mapped(submit: Callable[[S], Future[T]], tasks: Iterable[S], *, ahead: int) -> Iterator[T]:
    """`map` by an executor's threads or processes, with `ahead` tasks under way."""
    under_way = collections.deque[Future[T]]()
    for task in tasks:
        under_way.append(submit(task))
        if len(under_way) == ahead:
            yield under_way.popleft().result()
    yield from (future.result() for future in under_way)


@contextlib.contextmanager
def signals_held_back(*kinds: signal.Signals) -> Iterator[None]:
    """Processes started inside never get these signals; for this process they wait until the end.

    A terminal sends them to a whole group of processes.
    """
    # Its start would end the blocking below.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, kinds)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def processors() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def end_with_parent(*_: int) -> None:
    """Makes a worker process end when its parent does, however that ends. Call it in the worker."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(parent: int) -> None:
    # A worker waits on a pipe and holds both its ends: it would never see a dead parent.
    connection.wait([parent])
    os._exit(1)
