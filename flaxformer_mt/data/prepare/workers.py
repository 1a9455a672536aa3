"""Chunks encoded in other processes, given back in order.

Workers are spawned, not forked: the parent may run threads of JAX, and a forked child inherits the
locks they hold. They import no JAX, build their SentencePiece processors on the first chunk, leave
Ctrl-C to the parent, and end with it however it ends.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection, resource_tracker
from typing import Any

from flaxformer_mt.data.prepare.encode import Chunk, Encoded
from flaxformer_mt.data.prepare.manifest import PrepareError
from flaxformer_mt.errors import FAILED

Encode = Callable[[Chunk], Encoded]
SHORT = 5
"""A corpus of fewer chunks is encoded before a process has started."""
_AHEAD = 3
"""Chunks under way for each worker: none waits for the reader, and memory stays small."""


class WorkerDied(PrepareError):
    """A worker process ended without having been asked to."""

    exit_status = FAILED


class Workers(contextlib.AbstractContextManager["Workers"]):
    """Encodes chunks in `count` processes, or in this one where that is 0.

    What encodes one can be pickled. Without a count there is a process for each processor that this
    one may use, and none until there is a corpus long enough to be worth their start.
    """

    def __init__(self, encode: Encode, count: int | None = None) -> None:
        self._encode = encode
        self._count = _default_count() if count is None else count
        self._even_for_short = count is not None
        self._pool: ProcessPoolExecutor | None = None

    def encode(self, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Encoded]]:
        """Each chunk and what became of it, in the order of the chunks.

        Raises:
          WorkerDied: a worker process was killed or crashed.
        """
        first = list(itertools.islice(chunks, SHORT))
        chunks = itertools.chain(first, chunks)
        short = len(first) < SHORT and not self._even_for_short
        if self._count and (self._pool or not short):
            return self._encode_elsewhere(chunks)
        return ((chunk, self._encode(chunk)) for chunk in chunks)

    def __exit__(self, *_: Any) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def _encode_elsewhere(self, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, Encoded]]:
        under_way: collections.deque[tuple[Chunk, Future[Encoded]]] = collections.deque()
        try:
            for chunk in chunks:
                under_way.append((chunk, self._submit(chunk)))
                if len(under_way) == _AHEAD * self._count:
                    chunk, future = under_way.popleft()
                    yield chunk, future.result()
            while under_way:
                chunk, future = under_way.popleft()
                yield chunk, future.result()
        except BrokenProcessPool as error:
            raise WorkerDied(
                "a worker process of `prepare` died: it was killed, perhaps for want of memory; "
                "the same command starts over"
            ) from error

    def _submit(self, chunk: Chunk) -> Future[Encoded]:
        if self._pool is None:
            # Its start would end the blocking below.
            resource_tracker.ensure_running()
            self._pool = ProcessPoolExecutor(
                self._count,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start,
                initargs=(self._encode,),
            )
        # This may start a process, which inherits the mask. A Ctrl-C that arrives meanwhile is
        # not lost: it waits.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._pool.submit(_encode_here, chunk)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _default_count() -> int:
    processors = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return processors if processors > 1 else 0


_encode: Encode
"""In a worker process: what it was started with."""


def _start(encode: Encode) -> None:
    global _encode
    _encode = encode
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(parent: int) -> None:
    # A worker waits at a pipe of which it holds both ends: it would never see a dead parent.
    connection.wait([parent])
    os._exit(1)


def _encode_here(chunk: Chunk) -> Encoded:
    return _encode(chunk)
