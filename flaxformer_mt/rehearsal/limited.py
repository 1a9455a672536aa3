"""A command with a time limit, as a process of its own: it can't take a later one's time."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedStage:
    """A command (the words after `python -m`) for the number of seconds that it may take.

    It takes `most` seconds at most, and doesn't start with less than `least`.
    """

    name: str
    command: Callable[[float], Sequence[str]]
    most: float
    least: float = 0.0
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Running:
    """A stage that has been started in the folder `cwd`.

    `work`/NAME.out gets what it writes to standard output, and `work`/NAME.log the rest.
    """

    def __init__(
        self,
        stage: TimedStage,
        work: Path,
        seconds: float,
        *,
        cwd: str | os.PathLike[str] | None = None,
    ) -> None:
        self.stage = stage
        self.output = work / f"{stage.name}.out"
        self.log = work / f"{stage.name}.log"
        self._seconds, self._start = seconds, time.perf_counter()
        with self.log.open("wb") as log, self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *stage.command(seconds)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                cwd=cwd,
                env={**os.environ, **stage.environment},
                process_group=0,  # so that its own processes end with it
            )

    def end(self) -> tuple[str, float]:
        """Waits for it: the reason why it failed, "" if it didn't, and the seconds that it took."""
        reason = ""
        try:
            remaining = self._start + self._seconds - time.perf_counter()
            status = self._process.wait(max(0.0, remaining))
            if status:
                last_line = self.log_text().strip().rpartition("\n")[2]
                reason = f"status {status}: {last_line.strip()}"
        except subprocess.TimeoutExpired:
            reason = f"stopped after {self._seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return reason, time.perf_counter() - self._start

    def log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def allotted(stage: TimedStage, later: Sequence[TimedStage], remaining: float) -> float | None:
    """The seconds that a stage may take of the remaining ones; None: fewer than it needs.

    What later stages need at least is kept for as many of them as there is time for, in order.
    """
    for kept in range(len(later), -1, -1):
        room = remaining - sum(other.least for other in later[:kept])
        if room >= stage.least:
            return min(stage.most, room)
    return None
