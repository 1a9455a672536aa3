"""Progress and speed of long work: one updated line on a terminal, else a line now and then."""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

REPORT_EVERY = 10.0  # seconds between lines without a terminal
_RENEW = 0.2  # seconds between updates of the line on a terminal
_CLEAR = "\r\x1b[K"


def pace(count: int, seconds: float, *, tokens: int = 0, unit: str = "lines") -> str:
    """Such as "8,192 lines, 80.1 lines/s, 1,900 tokens/s"."""
    seconds = max(seconds, 1e-9)
    text = f"{count:,} {unit}, {count / seconds:,.1f} {unit}/s"
    return f"{text}, {tokens / seconds:,.0f} tokens/s" if tokens else text


class Meter(contextlib.AbstractContextManager["Meter"]):
    """Counts lines, and tokens where they are known; `begin` starts the clock again."""

    def __init__(
        self,
        what: str,
        say: Callable[[str], None],
        *,
        share: Callable[[int], float | None],
        unit: str = "lines",
        terminal: bool = False,
        clock: Callable[[], float] = time.monotonic,
        every: float = REPORT_EVERY,
    ) -> None:
        """`share` gives the share of the input that a size is, in the units of `advance`.

        `say` takes lines; on a terminal the meter keeps its own line below them.
        """
        self._what = what
        self._unit = unit
        self._say = say
        self._share = share
        self._terminal = terminal
        self._clock = clock
        self._every = every
        self.lines = self.tokens = 0
        self._shown = False
        self.begin(skipped=0)

    def begin(self, *, skipped: int) -> None:
        """Starts after a part of size `skipped`, done by an earlier call."""
        self._size = self._skipped = skipped
        self._began = self._said = self._clock()

    def advance(self, *, lines: int, size: int, tokens: int = 0) -> None:
        """Counts this many lines as done, with this total size."""
        self.lines += lines
        self.tokens += tokens
        self._size += size
        moment = self._clock()
        if self._terminal:
            if moment - self._said >= _RENEW or not self._shown:
                self._said = moment
                sys.stderr.write(f"{_CLEAR}{self._what}: {self.describe_progress()}")
                sys.stderr.flush()
                self._shown = True
        elif moment - self._said >= self._every:
            self._said = moment
            self._say(f"{self._what}: {self.describe_progress()}")

    def say(self, line: str) -> None:
        """Prints a line above the one that is updated."""
        self.close()
        self._say(line)

    def close(self) -> None:
        """Clears the line from the terminal until the next `advance`."""
        if self._shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._shown = False

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def describe(self) -> str:
        """The speed so far, as `pace`."""
        return pace(self.lines, self.seconds, tokens=self.tokens, unit=self._unit)

    def describe_progress(self) -> str:
        """The same and, where the input's size is known, "12.5% of the input, 0:01:40 left"."""
        text = self.describe()
        done = self._share(self._size)
        if done is None:
            return text

        text += f", {done:.1%} of the input"
        before = self._share(self._skipped) or 0.0
        if done > before:
            left = round(max(0.0, 1 - done) * self.seconds / (done - before))
            text += f", {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
        return text
