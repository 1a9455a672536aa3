"""A trace of some training steps, for XProf and TensorBoard's profiler."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import jax

from flaxformer_mt.errors import UserError


class ProfileError(UserError):
    """Steps that cannot be traced."""


def parse_steps(text: str) -> tuple[int, int]:
    """`A:B`, the first and the last step to trace. Raises ProfileError."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None:
        raise ProfileError(f"{text!r}: write A:B, the first and the last step to trace")
    first, last = int(match[1]), int(match[2])
    if first < 1 or last < first:
        raise ProfileError(f"{text!r}: steps count from 1, and the last is not before the first")
    return first, last


def check_steps(first: int, last: int, *, start: int, total: int) -> None:
    """Raises ProfileError unless all of these steps come after `start` and up to `total`."""
    if first <= start:
        raise ProfileError(
            f"steps {first:,} to {last:,} cannot be traced: this run goes on after step {start:,}"
        )
    if last > total:
        raise ProfileError(
            f"steps {first:,} to {last:,} cannot be traced: training ends at step {total:,} "
            "(training.steps)"
        )


class Profiler:
    """Traces steps `first` to `last`, both included, once; `folder` gets `plugins/profile/TIME/`.

    Python's own calls are left out: they slow down what is being measured. The caller sees to it
    that no step is under way when `begin` and `end` are called. Several processes all have one,
    since they must wait for their steps alike; those without a folder trace nothing.
    """

    def __init__(self, first: int, last: int, folder: Path | None) -> None:
        self.first, self.last, self._folder = first, last, folder
        self.running = self._over = False

    def begins_at(self, step: int) -> bool:
        return step == self.first and not self._over

    def ends_at(self, step: int) -> bool:
        return step == self.last and self.running

    def begin(self) -> None:
        self.running = self._over = True
        if self._folder is None:
            return
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
        return (
            f"trace of steps {self.first:,} to {step:,} written: "
            f"tensorboard --logdir {self._folder}"
        )


class NoProfiler(Profiler):
    """Traces nothing at no step."""

    def __init__(self) -> None:
        super().__init__(0, 0, None)
