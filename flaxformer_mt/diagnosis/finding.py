"""What one look at the machine has found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

State = Literal["ok", "warn", "FAIL"]
Value = float | str | None


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report: `text` says what is so, `advice` what to do about it.

    A warning is for what works, but perhaps not as it was meant; a failure for what training would
    run into.
    """

    name: str
    state: State
    text: str
    advice: str = ""
    values: Mapping[str, Value] = dataclasses.field(default_factory=dict)

    def line(self) -> str:
        advice = f" → {self.advice}" if self.advice else ""
        return f"{self.state:<5}{self.name:<15}{self.text}{advice}"


Check = Callable[[], Iterator[Finding]]


def examined(name: str, check: Check) -> Iterator[Finding]:
    """The findings of a check; one that breaks off is a failure by its name, not the end of all."""
    try:
        yield from check()
    except Exception as error:
        reason = " ".join((str(error) or type(error).__name__).split())[:500]
        advice = "see the message; where it says nothing of use, run the check's part by hand"
        yield Finding(name, "FAIL", f"{type(error).__name__}: {reason}", advice)
