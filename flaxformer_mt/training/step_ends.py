"""When dispatched steps end on the devices, noted while the loop does something else."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from concurrent.futures import Future
from typing import Any

_PATIENCE = 1.0  # seconds for which the end waits for a step that is still under way


class StepEnds:
    """A thread that waits for one result after the other, in the order of `watch`.

    It costs a step nothing and has no say in it. What goes wrong in a step is raised where its
    metrics are fetched; here that is an end as any other.
    """

    def __init__(self) -> None:
        self._watched: queue.SimpleQueue[tuple[Any, Future[float]] | None] = queue.SimpleQueue()
        # A daemon: of several processes one may have died, and then a step never ends.
        self._thread = threading.Thread(target=self._wait, name="step ends", daemon=True)
        self._thread.start()

    def watch(self, result: Any) -> Future[float]:
        """The time by `time.perf_counter` at which `result`, an array under way, is computed."""
        ended: Future[float] = Future()
        self._watched.put((result, ended))
        return ended

    def close(self) -> None:
        self._watched.put(None)
        self._thread.join(_PATIENCE)

    def _wait(self) -> None:
        while (watched := self._watched.get()) is not None:
            result, ended = watched
            with contextlib.suppress(Exception):
                result.block_until_ready()
            ended.set_result(time.perf_counter())
