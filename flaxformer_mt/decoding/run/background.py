"""Programs that threads compile while others run."""

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from flaxformer_mt.data.processes import processors

Key = TypeVar("Key", bound=Hashable)


class BackgroundCompiler(Generic[Key]):
    """Tasks that compile programs, each done once, by as many threads as there are cores."""

    def __init__(self) -> None:
        self._begun: dict[Key, Future[object]] = {}

    @contextlib.contextmanager
    def beside(self, tasks: Mapping[Key, Callable[[], object]]) -> Iterator[None]:
        """Inside, threads work through the tasks, by their keys, that haven't been done. At the end
        those not yet begun are dropped; nothing waits for the others."""
        pool = ThreadPoolExecutor(processors())
        try:
            for key, task in tasks.items():
                if key not in self._begun:
                    self._begun[key] = pool.submit(task)
            yield
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for key in tasks:
                future = self._begun.get(key)
                if future is not None and future.done() and _has_failed(future):
                    del self._begun[key]

    def wait_for(self, key: Key) -> None:
        """Returns when nothing is to be waited for: the task is done, dropped, or unknown. Raises
        what it raised."""
        future = self._begun.get(key)
        if future is not None:
            with contextlib.suppress(CancelledError):
                future.result()


def _has_failed(future: Future[object]) -> bool:
    return future.cancelled() or future.exception() is not None
