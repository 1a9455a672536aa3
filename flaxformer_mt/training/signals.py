"""Ctrl-C and SIGTERM as requests that the loop honours between steps."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any

from flaxformer_mt.parallel.processes import ALONE, Processes

_PROCESS = 128  # above any signal's number


class StopRequest:
    """While entered, the first SIGINT or SIGTERM sets `received`; a second one acts as usual.

    Preempted machines send SIGTERM some tens of seconds before they stop: time for one checkpoint.
    """

    def __init__(self, processes: Processes = ALONE) -> None:
        self.received: str | None = None
        self.after = "this step"  # what is still finished once a stop is asked for
        self._processes = processes
        self._heard = 0
        self._previous: dict[int, Any] = {}

    def ask(self) -> Any:
        """What any process says about a stop, for `hear`: computed on the devices, not awaited."""
        mine = 0
        if self.received is not None:
            mine = self._processes.number * _PROCESS + signal.Signals[self.received].value
        return self._processes.ask(mine)

    def hear(self, answer: Any) -> None:
        self._heard = max(self._heard, int(answer))

    @property
    def reason(self) -> str | None:
        """Why to stop, if so: for several processes, what all of them know."""
        if self._processes.count == 1:
            return f"{self.received} received" if self.received else None
        if self._heard == 0:
            return None
        process, number = divmod(self._heard, _PROCESS)
        return f"{signal.Signals(number).name} received by process {process}"

    def __enter__(self) -> StopRequest:
        # Python sets handlers only in the main thread.
        here = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGINT, signal.SIGTERM) if here else ():
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        self._restore()
        # Not with print: the signal may have interrupted one.
        with contextlib.suppress(OSError):
            os.write(2, f"\n{self.received}: stopping after {self.after}\n".encode())

    def _restore(self) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, handler)
