"""Where a run's wall time goes, over all its starts: the share of it that made the model.

Goodput as large training jobs count it: of the seconds that a run has had a machine, those in which
it did steps that count. A step that is done again because the run went back to a checkpoint was
lost the first time. The time between two starts belongs to nobody and is not counted.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flaxformer_mt.errors import FlaxformerError
from flaxformer_mt.rundir.atomic import read_json, write_json
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.training.telemetry import duration

# Kind of time -> what it is called in the table.
KINDS = {
    "steps": "steps that count",
    "compile": "compiling a step",
    "data": "waiting for data",
    "checkpoints": "checkpoints",
    "evaluation": "validation",
    "start": "start: data, model, restoring",
    "lost": "steps done again after going back",
    "other": "everything else",
}
_MARKS = 100  # checkpoints of which it is remembered how much work lay before them


class GoodputError(FlaxformerError):
    """A file that holds no such account."""


class Goodput:
    """An account of time: every second since it was opened belongs to exactly one kind.

    `lap` says after the fact what the time since the last lap was.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self.starts = 1
        self.step = 0
        """The step up to which steps are counted."""
        self._before = {0: 0.0}  # step of a checkpoint -> seconds of steps up to it
        self._clock = clock
        self._mark = clock()

    def lap(self, kind: str, *, until: float | None = None) -> None:
        """The time since the last lap was of this kind; or what of it lay before `until`."""
        now = self._clock()
        end = now if until is None else min(max(until, self._mark), now)
        self.seconds[kind] += end - self._mark
        self._mark = end

    def done(self, step: int) -> None:
        """The run has done its steps up to this one."""
        self.step = step

    def saved(self, step: int) -> None:
        """A checkpoint of this step is on its way: going back to it loses what comes after this."""
        self._before[step] = self.seconds["steps"]
        for old in sorted(self._before)[1:-_MARKS]:
            del self._before[old]

    def goes_on_after(self, step: int) -> None:
        """Training goes on from the checkpoint of this step: what was done after it is lost."""
        if step < self.step:
            steps = self.seconds["steps"]
            # A checkpoint that this account knows nothing of: as if all steps took the same.
            kept = self._before.get(step, steps * step / self.step)
            self.seconds["lost"] += steps - kept
            self.seconds["steps"] = kept
        self._before = {at: seconds for at, seconds in self._before.items() if at <= step}
        self.step = step

    @property
    def wall(self) -> float:
        """Seconds accounted for."""
        return sum(self.seconds.values())

    @property
    def share(self) -> float:
        """Goodput: the share of them in steps that count, in [0, 1]."""
        return self.seconds["steps"] / self.wall if self.wall else 0.0

    def table(self) -> str:
        """Lines for people: every kind that took time."""
        starts = "1 start" if self.starts == 1 else f"{self.starts} starts"
        lines = [f"goodput {100 * self.share:.1f}% of {duration(self.wall)} in {starts}"]
        for kind, name in KINDS.items():
            if seconds := self.seconds[kind]:
                share = 100 * seconds / self.wall
                lines.append(f"  {name:<36}{duration(seconds):>10}{share:>8.1f}%")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "goodput": self.share,
            "wall_seconds": self.wall,
            "seconds": self.seconds,
            "starts": self.starts,
            "step": self.step,
            "before": {str(step): seconds for step, seconds in self._before.items()},
        }

    def add_past(self, past: Mapping[str, Any]) -> None:
        """Takes in `to_dict` of an earlier start, before any step of this. Raises GoodputError."""
        try:
            seconds = {kind: float(past["seconds"].get(kind, 0.0)) for kind in KINDS}
            starts, step = int(past["starts"]), int(past["step"])
            before = {int(at): float(value) for at, value in past["before"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise GoodputError(
                f"is no account of time ({type(error).__name__}: {error})"
            ) from error
        self._before = {0: 0.0} | before
        for kind, value in seconds.items():
            self.seconds[kind] += value
        self.starts, self.step = self.starts + starts, step


@dataclasses.dataclass
class GoodputFile:
    """The account as a small file of the run directory; without a path it is kept nowhere.

    It is a report: a file that cannot be read or written is said once and stops nothing.
    """

    path: Path | None
    report: Callable[[str], None] = print
    _failed: bool = False

    def load(self, goodput: Goodput) -> None:
        """Adds the earlier starts' account, if there is one."""
        if self.path is None or not self.path.exists():
            return
        try:
            goodput.add_past(read_json(self.path))
        except (RunDirectoryError, GoodputError) as error:
            self.report(f"goodput is counted anew: {self.path.name}: {error}")

    def save(self, goodput: Goodput) -> None:
        if self.path is None:
            return
        try:
            write_json(self.path, goodput.to_dict())
            self._failed = False
        except RunDirectoryError as error:
            if not self._failed:
                self.report(f"goodput is not kept: {error}")
            self._failed = True
