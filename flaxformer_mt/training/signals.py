"""Ctrl-C and SIGTERM as a request that the loop honours between two steps."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

_PROCESS = 128  # above any signal's number


def verdict(ballot: int) -> str | None:
    """Which stop a ballot asks for, such as "SIGTERM received by process 1"; None for 0."""
    if ballot == 0:
        return None
    process, number = divmod(ballot, _PROCESS)
    return f"{signal.Signals(number).name} received by process {process}"


class StopRequest:
    """While entered, the first SIGINT or SIGTERM sets `received`; a second one acts as usual.

    Preempted machines send SIGTERM some tens of seconds before they go: time for one checkpoint.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def ballot(self, process: int) -> int:
        """What `process` says of a stop when all ask each other: 0, or what `verdict` reads."""
        if self.received is None:
            return 0
        return process * _PROCESS + signal.Signals[self.received].value

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number).name
        self._restore()

    def _restore(self) -> None:
        while self._previous:
            number, handler = self._previous.popitem()
            signal.signal(number, handler)
