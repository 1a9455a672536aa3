"""How far a long reading is: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Report = Callable[[str], None]

EVERY = 10.0
"""Seconds between two lines."""


class Meter:
    """Says how far the stage under way is; other lines go through `say`, past the bar."""

    def __init__(self, report: Report, *, bar: bool = False) -> None:
        self._report = report
        self._wants_bar = bar
        self._bar: Any = None
        self._what, self._unit = "", ""
        self._total: int | None = None
        self._done = 0
        self._began = self._said = 0.0

    def say(self, line: str) -> None:
        if self._bar is None:
            self._report(line)
            return
        self._bar.clear()
        self._report(line)
        self._bar.refresh()

    @contextlib.contextmanager
    def stage(
        self, what: str, total: int | None, *, unit: str = "pairs", done: int = 0
    ) -> Iterator[None]:
        """While something is read: `total` of what `advance` counts, None if that is not known."""
        self._what, self._unit, self._total, self._done = what, unit, total, done
        self._began = self._said = time.monotonic()
        self._first = done
        if self._wants_bar:
            # Only whoever sees a bar waits for its import.
            from tqdm import tqdm

            self._bar = tqdm(
                desc=f"prepare: {what}",
                total=total,
                initial=done,
                unit="B" if unit == "bytes" else f" {unit}",
                unit_scale=True,
                leave=False,
                dynamic_ncols=True,
                file=sys.stderr,
            )
        try:
            yield
        finally:
            if self._bar is not None:
                self._bar.close()
                self._bar = None

    def advance(self, count: int) -> None:
        self._done += count
        if self._bar is not None:
            self._bar.update(count)
            return
        now = time.monotonic()
        if now - self._said >= EVERY:
            self._said = now
            self._report(f"prepare: {self._what}: {self._describe(now - self._began)}")

    def _describe(self, seconds: float) -> str:
        rate = (self._done - self._first) / seconds
        if self._unit == "bytes":
            done, total, pace = (
                None if n is None else f"{n / 1e6:,.0f} MB" for n in (self._done, self._total, rate)
            )
        else:
            done, total, pace = (
                None if n is None else f"{n:,.0f} {self._unit}"
                for n in (self._done, self._total, rate)
            )
        if self._total is None:
            return f"{done}, {pace} a second"
        left = max(0, self._total - self._done) / rate
        return f"{done} of {total}, {pace} a second, {left // 60:.0f}:{left % 60:02.0f} left"
