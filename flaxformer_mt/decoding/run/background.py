"""Programs that threads compile while others run."""

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from flaxformer_mt.data.processes import processors

Key = TypeVar("Key", bound=Hashable)


class BackgroundCompiler(Generic[Key]):
    """Tasks that compile programs, by as many threads as there are cores.

    Each is done once, whichever threads ask for it, unless it fails.
    """

    def __init__(self) -> None:
        self._begun: dict[Key, Future[object]] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def beside(self, tasks: Mapping[Key, Callable[[], object]]) -> Iterator[None]:
        """Inside, threads work through the tasks that haven't been done. At the end those not yet
        begun are dropped; nothing waits for the others."""
        pool = ThreadPoolExecutor(processors())
        try:
            with self._lock:
                for key, task in tasks.items():
                    known = self._begun.get(key)
                    if known is None or _has_failed(known):
                        self._begun[key] = pool.submit(task)
            yield
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def wait_for(self, key: Key) -> None:
        """Waits until the task is done; returns at once if it was dropped or is unknown. Raises its
        error."""
        future = self._begun.get(key)
        if future is not None:
            with contextlib.suppress(CancelledError):
                future.result()


def _has_failed(future: Future[object]) -> bool:
    """Whether it was dropped, or has ended with an error."""
    return future.done() and (future.cancelled() or future.exception() is not None)
