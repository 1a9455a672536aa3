"""A process with a limited time, which is measured on the wall and in CPU seconds."""

import bisect
import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

Clock = Literal["wall", "cpu"]
CORES = 2  # that a cell's minutes are of
_EVERY = 0.5  # seconds between two looks
_PATIENCE = 180.0  # seconds for a process to save and end, once it was asked to


@dataclasses.dataclass(frozen=True)
class Spent:
    """Seconds since a command was given, and CPU seconds of all its processes."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds)

    def by(self, clock: Clock) -> float:
        """What a limit on this clock counts: minutes of two cores, in wall seconds."""
        return self.seconds if clock == "wall" else self.cpu_seconds / CORES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Course:
    """How a process ran: when it began (seconds of the epoch), and what it had spent when."""

    begin: float
    samples: tuple[Spent, ...]
    status: int
    interrupted: bool = False

    @property
    def end(self) -> Spent:
        return self.samples[-1]

    def at(self, moment: float) -> Spent:
        """What had been spent at a moment (seconds of the epoch) of its run."""
        seconds = min(max(moment - self.begin, 0.0), self.end.seconds)
        place = bisect.bisect_left([sample.seconds for sample in self.samples], seconds)
        return Spent(seconds, self.samples[place].cpu_seconds)


def priority(clock: Clock) -> list[str]:
    """What a command begins with: where CPU time counts, it takes only what others leave."""
    return ["chrt", "--idle", "0"] if clock == "cpu" else []


def timed(
    command: Sequence[str],
    *,
    seconds: float,
    clock: Clock,
    stop: signal.Signals,
    log: Path,
    folder: Path,
    environment: dict[str, str],
    is_done: Callable[[], bool] = lambda: False,
) -> Course:
    """Runs a command, in a session of its own, and asks it to stop by a signal after `seconds`.

    It isn't asked once it `is_done` and only ends. By the clock "cpu" it runs at idle priority. If
    this process is interrupted (SIGINT), the command is asked to stop too, and the course says so.
    """
    begin, start = time.time(), time.monotonic()
    samples = [Spent()]
    interrupted, asked = False, None
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*priority(clock), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                try:
                    time.sleep(_EVERY)
                    cpu = max(_cpu_seconds(process.pid), samples[-1].cpu_seconds)
                    samples.append(Spent(time.monotonic() - start, cpu))
                except KeyboardInterrupt:
                    interrupted = True

                now = time.monotonic()
                is_late = samples[-1].by(clock) >= seconds and not is_done()
                if asked is None and (interrupted or is_late):
                    asked = now
                    process.send_signal(stop)
                elif asked is not None and now - asked > _PATIENCE:
                    os.killpg(process.pid, signal.SIGKILL)
        finally:
            # Of a session of its own, it would outlive an error in here.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return Course(
        begin=begin, samples=tuple(samples), status=process.returncode, interrupted=interrupted
    )


def _cpu_seconds(session: int) -> float:
    """Of all processes of a session, with the children that they have waited for (Linux)."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("utf-8").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")
