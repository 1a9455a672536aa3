"""Instruments that only observe training: goodput, MFU, and traces of steps."""

import contextlib
import dataclasses
import datetime
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax

from flaxformer_mt.config import ModelConfig
from flaxformer_mt.errors import UserError
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.parallel.chips import chip_of, product_flops
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import read_json, write_json


def duration(seconds: float) -> str:
    """Seconds as `1:02:03`."""
    return str(datetime.timedelta(seconds=round(seconds))) if math.isfinite(seconds) else "?"


def roughly(seconds: float) -> str:
    """Seconds as "40 s", "6 min" or "5.2 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


# Kind of time -> what it is called in the table.
KINDS = {
    "steps": "training steps",
    "compile": "compiling a step",
    "data": "waiting for data",
    "checkpoints": "checkpoints",
    "evaluation": "validation",
    "start": "start: data, model, restoring",
    "lost": "steps repeated after a rollback",
    "other": "everything else",
}
_MARKS = 100  # checkpoints whose preceding work is remembered


class Goodput:
    """Where a run's wall time goes, over all its starts: the share spent on steps that count.

    A step that is done again after going back to a checkpoint was lost the first time. Time between
    two starts isn't counted. `with goodput("checkpoints"):` counts its body as that kind, except
    for blocks inside it; outside of all blocks time counts as "start".
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.kind = "start"  # of passing time: a block may change it once it knows better
        self.starts = 1
        self.step = 0  # the last one counted
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._before = {0: 0.0}  # step of a checkpoint -> seconds of steps up to it
        self._clock = clock
        self._mark = clock()
        self._path: Path | None = None
        self._report: Callable[[str], None] = print
        self._failed = False

    @contextlib.contextmanager
    def __call__(self, kind: str) -> Iterator[None]:
        self._count()
        outer, self.kind = self.kind, kind
        try:
            yield
        finally:
            self._count()
            self.kind = outer

    def _count(self) -> None:
        now = self._clock()
        self._seconds[self.kind] += now - self._mark
        self._mark = now

    @property
    def seconds(self) -> dict[str, float]:
        """Of each kind, up to now."""
        self._count()
        return self._seconds

    @property
    def share(self) -> float:
        """Goodput: the share of all seconds in steps that count, in [0, 1]."""
        seconds = self.seconds
        wall = sum(seconds.values())
        return seconds["steps"] / wall if wall else 0.0

    def saved(self, step: int) -> None:
        """A checkpoint of this step is on its way: going back to it loses what comes after."""
        self._before[step] = self.seconds["steps"]
        for old in sorted(self._before)[1:-_MARKS]:
            del self._before[old]

    def goes_on_after(self, step: int) -> None:
        """Training resumes from the checkpoint of this step: later work is lost."""
        if step < self.step:
            seconds = self.seconds
            # A checkpoint that this account knows nothing of: as if all steps took the same.
            kept = self._before.get(step, seconds["steps"] * step / self.step)
            seconds["lost"] += seconds["steps"] - kept
            seconds["steps"] = kept
        self._before = {at: seconds for at, seconds in self._before.items() if at <= step}
        self.step = step

    def keep_in(self, path: Path, report: Callable[[str], None]) -> None:
        """Adds what earlier starts left in the file, to which `keep` writes.

        A file that cannot be read or written is reported once and stops nothing.
        """
        self._path, self._report = path, report
        if not path.exists():
            return
        try:
            past = read_json(path)
            seconds = {kind: float(past["seconds"].get(kind, 0.0)) for kind in KINDS}
            starts, step = int(past["starts"]), int(past["step"])
            before = {int(at): float(value) for at, value in past["before"].items()}
        except (RunDirectoryError, KeyError, TypeError, ValueError, AttributeError) as error:
            known = isinstance(error, RunDirectoryError)
            problem = error if known else f"is not valid ({type(error).__name__}: {error})"
            report(f"goodput restarts from zero: {path.name}: {problem}")
            return
        self._before = {0: 0.0} | before
        for kind, value in seconds.items():
            self._seconds[kind] += value
        self.starts, self.step = self.starts + starts, step

    def keep(self, step: int) -> None:
        """Writes down where the time went up to this step, if there is a file for it."""
        self.step = step
        if self._path is None:
            return
        account = {
            "goodput": self.share,
            "wall_seconds": sum(self.seconds.values()),
            "seconds": self.seconds,
            "starts": self.starts,
            "step": step,
            "before": {str(at): seconds for at, seconds in self._before.items()},
        }
        try:
            write_json(self._path, account)
            self._failed = False
        except RunDirectoryError as error:
            if not self._failed:
                self._report(f"goodput not saved: {error}")
            self._failed = True

    def table(self) -> str:
        """Lines for people: every kind that took time."""
        wall = sum(self.seconds.values())
        starts = "1 start" if self.starts == 1 else f"{self.starts} starts"
        lines = [f"goodput {100 * self.share:.1f}% of {duration(wall)} in {starts}"]
        for kind, name in KINDS.items():
            if seconds := self._seconds[kind]:
                lines.append(f"  {name:<36}{duration(seconds):>10}{100 * seconds / wall:>8.1f}%")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Peak:
    """FLOP/s of all devices together at best, and where that figure comes from."""

    flops: float
    source: str


def find_peak(
    devices: Sequence[jax.Device], chip_tflops: float, dtype: str
) -> tuple[Peak | None, str]:
    """The peak that MFU is a share of, None if it is unknown, and a line about it for people.

    `chip_tflops`, if not 0, is one device's. Otherwise an accelerator's peak is that of the chip
    table, in bfloat16 whatever the model computes in; a CPU's is measured now, in about half a
    second, with a product of the model's `dtype`, and counted once a process.
    """
    if chip_tflops:
        flops, source = chip_tflops * 1e12, "training.chip_tflops"
        each = f"{chip_tflops:g} TFLOP/s per device ({source})"
    elif devices[0].platform == "cpu":
        begin = time.perf_counter()
        # A square product of this size keeps all cores of a usual machine busy.
        measured = product_flops(jax.local_devices()[0], dtype=dtype, size=1024, seconds=0.15)
        seconds = time.perf_counter() - begin
        line = (
            f"MFU baseline: {measured / 1e9:,.0f} GFLOP/s ({dtype} matmul, measured in "
            f"{seconds:.1f} s)"
        )
        processes = len({device.process_index for device in devices})
        if processes > 1:
            line += f", x {processes} processes"
        return Peak(measured * processes, f"measured {dtype} product"), line
    elif chip := chip_of(devices[0].device_kind):
        flops, source = chip.bf16_flops, chip.name
        each = f"{flops / 1e12:,.0f} TFLOP/s per device ({source}, {chip.half})"
    else:
        return None, (
            f"MFU not reported: unknown peak of {devices[0].device_kind!r}; set "
            "training.chip_tflops to a device's dense bfloat16 TFLOP/s"
        )
    return Peak(flops * len(devices), source), f"MFU baseline: {each} x {len(devices)}"


@dataclasses.dataclass(frozen=True)
class Utilization:
    """Turns counts of tokens and seconds into a share of `peak`."""

    model: ModelConfig
    tgt_vocab_size: int
    peak: Peak

    def share(
        self, *, src_tokens: float, tgt_tokens: float, sentences: float, seconds: float
    ) -> float:
        """MFU, forward and backward pass, of tokens that are no padding.

        In attention every token is taken to see as many as a mean sentence has: some thousandths
        too few in all, as lengths are uneven. Gradients of frozen parameters count, too.
        """
        flops = training_flops(
            self.model,
            self.tgt_vocab_size,
            src_tokens=src_tokens,
            tgt_tokens=tgt_tokens,
            src_keys=src_tokens / sentences,
            tgt_keys=tgt_tokens / sentences,
        )
        return flops / (seconds * self.peak.flops)


class ProfileError(UserError):
    """Steps that cannot be traced."""


def parse_steps(text: str) -> tuple[int, int]:
    """`A:B`, the first and the last step to trace. Raises ProfileError."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None:
        raise ProfileError(f"{text!r}: write A:B, the first and last step to trace")
    first, last = int(match[1]), int(match[2])
    if not 1 <= first <= last:
        raise ProfileError(f"{text!r}: A must be at least 1, and at most B")
    return first, last


def check_steps(first: int, last: int, *, start: int, total: int) -> None:
    """Raises ProfileError unless all of these steps come after `start` and up to `total`."""
    if first <= start:
        problem = f"this run resumes after step {start:,}"
    elif last > total:
        problem = f"training ends at step {total:,} (training.steps)"
    else:
        return
    raise ProfileError(f"steps {first:,} to {last:,} cannot be traced: {problem}")


class Profiler:
    """Traces steps `first` to `last`, both included, once; `folder` gets `plugins/profile/TIME/`.

    By default it traces nothing. Python's own calls are left out: they slow down what is measured.
    No step may be under way at `begin` and `end`. All processes have one, since they must wait for
    their steps alike; those without a folder write nothing.
    """

    def __init__(self, first: int = 0, last: int = 0, folder: Path | None = None) -> None:
        self.first, self.last, self._folder = first, last, folder
        self.running = self._over = False

    def begins_at(self, step: int) -> bool:
        return step == self.first and not self._over

    def ends_at(self, step: int) -> bool:
        return step == self.last and self.running

    def begin(self) -> None:
        self.running = self._over = True
        if self._folder is not None:
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0
            jax.profiler.start_trace(str(self._folder), profiler_options=options)

    def step(self, number: int) -> contextlib.AbstractContextManager[object]:
        """Around the dispatch of a step: names it in the trace."""
        if not self.running:
            return contextlib.nullcontext()
        return jax.profiler.StepTraceAnnotation("train", step_num=number)

    def end(self, step: int) -> str:
        """Writes the trace, whose last step was this one; says where it is."""
        self.running = False
        if self._folder is None:
            return ""
        jax.profiler.stop_trace()
        steps = f"{self.first:,} to {step:,}"
        return f"trace of steps {steps} written: tensorboard --logdir {self._folder}"


@dataclasses.dataclass(frozen=True)
class Instruments:
    """By default only the time of this start is counted. `utilization` None: no peak is known."""

    goodput: Goodput = dataclasses.field(default_factory=Goodput)
    profiler: Profiler = dataclasses.field(default_factory=Profiler)
    utilization: Utilization | None = None
