"""Instruments that only observe training: goodput, MFU, and traces of steps."""

import contextlib
import dataclasses
import datetime
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import jax

from flaxformer_mt.config import ModelConfig
from flaxformer_mt.errors import UserError
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.parallel.chips import chip_of, product_flops
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import document, write_json


def duration(seconds: float) -> str:
    """Seconds as `1:02:03`."""
    return str(datetime.timedelta(seconds=round(seconds))) if math.isfinite(seconds) else "?"


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


class Goodput:
    """Where a run's wall time goes, over all its starts: the share spent on steps that count.

    A step that is repeated after a rollback was lost the first time. Time between starts isn't
    counted. `with goodput("checkpoints"):` counts its body as that kind, except for blocks inside
    it; time outside all blocks counts as "start".
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.kind = "start"  # of the time that passes; a block may change it
        self.starts = 1
        self.step = 0  # the last one counted
        self._seconds = dict.fromkeys(KINDS, 0.0)
        self._clock = clock
        self._mark = clock()
        self._path: Path | None = None

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
        """Of each kind, until now."""
        self._count()
        return self._seconds

    @property
    def wall(self) -> float:
        """All seconds, until now."""
        return sum(self.seconds.values())

    @property
    def share(self) -> float:
        """Goodput: the share of all seconds in steps that count, in [0, 1]."""
        wall = self.wall
        return self._seconds["steps"] / wall if wall else 0.0

    def goes_on_after(self, step: int) -> None:
        """Training resumes from this step: later work is lost, as if steps took equal times."""
        if step < self.step:
            seconds = self.seconds
            lost = seconds["steps"] * (1 - step / self.step)
            seconds["lost"] += lost
            seconds["steps"] -= lost
        self.step = step

    def keep_in(self, path: Path, say: Callable[[str], None]) -> None:
        """Adds what earlier starts left in the file, to which `keep` writes."""
        self._path = path
        if not path.exists():
            return
        try:
            with document(path, "goodput restarts from zero") as past:
                seconds = {kind: float(past["seconds"].get(kind, 0.0)) for kind in KINDS}
                starts, step = int(past["starts"]), int(past["step"])
        except RunDirectoryError as error:
            say(str(error))
            return
        for kind, past_seconds in seconds.items():
            self._seconds[kind] += past_seconds
        self.starts, self.step = self.starts + starts, step

    def keep(self, step: int) -> None:
        """Writes where the time went up to this step, if there is a file for it."""
        self.step = step
        if self._path is None:
            return
        account = {
            "goodput": self.share,
            "wall_seconds": self.wall,
            "seconds": self.seconds,
            "starts": self.starts,
            "step": step,
        }
        write_json(self._path, account)

    def table(self) -> str:
        wall = self.wall
        starts = "1 start" if self.starts == 1 else f"{self.starts} starts"
        lines = [f"goodput {100 * self.share:.1f}% of {duration(wall)} in {starts}"]
        for kind, name in KINDS.items():
            if seconds := self._seconds[kind]:
                lines.append(f"  {name:<36}{duration(seconds):>10}{100 * seconds / wall:>8.1f}%")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Peak:
    """Peak FLOP/s of all devices together, and where that figure comes from."""

    flops: float
    source: str


def find_peak(
    devices: Sequence[jax.Device], chip_tflops: float, dtype: str
) -> tuple[Peak | None, str]:
    """The peak that MFU is a share of (None: unknown), and a line about it for people.

    `chip_tflops`, if not 0, is one device's. Otherwise an accelerator's is taken from the chip
    table, in bfloat16 whatever the model's dtype; a CPU's is measured now, in about half a second,
    by a matmul in `dtype`, and counted once per process.
    """
    if chip_tflops:
        flops = chip_tflops * 1e12
        source = "training.chip_tflops"
        per_device = f"{chip_tflops:g} TFLOP/s per device ({source})"
    elif devices[0].platform == "cpu":
        return _measured_peak(devices, dtype)
    elif chip := chip_of(devices[0].device_kind):
        flops, source = chip.bf16_flops, chip.name
        per_device = f"{flops / 1e12:,.0f} TFLOP/s per device ({source}, {chip.half})"
    else:
        return None, (
            f"MFU not reported: unknown peak of {devices[0].device_kind!r}; set "
            "training.chip_tflops to a device's dense bfloat16 TFLOP/s"
        )
    return Peak(flops * len(devices), source), f"MFU baseline: {per_device} x {len(devices)}"


def _measured_peak(devices: Sequence[jax.Device], dtype: str) -> tuple[Peak, str]:
    """As `find_peak`, of CPUs: all devices of a process share its cores."""
    begin = time.perf_counter()
    measured = product_flops(jax.local_devices()[0], dtype=dtype, size=1024, seconds=0.15)
    seconds = time.perf_counter() - begin
    line = (
        f"MFU baseline: {measured / 1e9:,.0f} GFLOP/s ({dtype} matmul, measured in {seconds:.1f} s)"
    )
    processes = len({device.process_index for device in devices})
    if processes > 1:
        line += f", x {processes} processes"
    return Peak(measured * processes, f"measured {dtype} product"), line


@dataclasses.dataclass(frozen=True)
class Utilization:
    model: ModelConfig
    tgt_vocab_size: int
    peak: Peak

    def share(
        self, *, src_tokens: float, tgt_tokens: float, sentences: float, seconds: float
    ) -> float:
        """MFU of forward and backward pass, without padding.

        Every token is taken to attend to a mean sentence's tokens, which is some thousandths too
        few in all. Gradients of frozen parameters count, too.
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


def check_steps(first: int, last: int, *, start: int, total: int) -> None:
    """Raises ProfileError unless all these steps are after `start` and at most `total`."""
    if first <= start:
        raise ProfileError(
            f"steps {first:,} to {last:,} cannot be traced: this run resumes after step {start:,}"
        )
    if last > total:
        raise ProfileError(
            f"steps {first:,} to {last:,} cannot be traced: training ends at step {total:,} "
            "(training.steps)"
        )


class Profiler:
    """Traces steps `first` to `last` once, into `folder/plugins/profile/TIME/`; by default none.

    Python calls are left out, since tracing them slows down the steps. No step may be running at
    `begin` and `end`. All processes have one, so that all wait for the same steps; those without a
    folder write nothing.
    """

    def __init__(self, first: int = 0, last: int = 0, folder: Path | None = None) -> None:
        self.first, self.last, self._folder = first, last, folder
        self.running = self.over = False

    def begin(self) -> None:
        self.running = self.over = True
        if self._folder is not None:
            options = jax.profiler.ProfileOptions()
            options.python_tracer_level = 0
            jax.profiler.start_trace(str(self._folder), profiler_options=options)

    def step(self, number: int) -> contextlib.AbstractContextManager[object]:
        """Wraps a step's dispatch: names it in the trace."""
        if not self.running:
            return contextlib.nullcontext()
        return jax.profiler.StepTraceAnnotation("train", step_num=number)

    def end(self, step: int) -> str:
        """Writes the trace, which ends with this step; says where it is."""
        self.running = False
        if self._folder is None:
            return ""
        jax.profiler.stop_trace()
        return (
            f"trace of steps {self.first:,} to {step:,} written: "
            f"tensorboard --logdir {self._folder}"
        )
