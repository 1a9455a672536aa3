"""Ten training steps, timed and then profiled, beside their plan."""

import dataclasses
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from flaxformer_mt.data.plan import Shape
from flaxformer_mt.diagnosis.machine import Finding, Value, noted
from flaxformer_mt.diagnosis.step import program_of
from flaxformer_mt.parallel.mesh import on_mesh, place_batch
from flaxformer_mt.planning.fit import largest_shape
from flaxformer_mt.planning.hlo import parse
from flaxformer_mt.planning.measured import (
    COLLECTIVES,
    ELSEWHERE,
    UNESTIMATED,
    PartTime,
    measured_parts,
    planned_parts,
    side_by_side,
)
from flaxformer_mt.rehearsal.rehearsed import Rehearsed, check_plan
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.try_step import full_batch

STEPS = 10
_WARM_UP = 3
# The one step whose plan and time are both on record took 1.1 times the plan's (an H100). Half as
# much again is no error of an estimate, but another program, flag or machine.
_TOO_SLOW = 1.5
_NOTICEABLE = 0.05  # of the step: a part whose plan is wrong by less isn't mentioned
_MEMORY_IS_MORE = 1.1
_GIB = 1 << 30

_MEANING = {
    COLLECTIVES: (
        "the network between chips is slower than its data sheet, or less is hidden: check that "
        "all hosts are in one slice and that the mesh fits it, and compare the compiler's version "
        "and LIBTPU_INIT_ARGS or XLA_FLAGS with the plan's"
    ),
    UNESTIMATED: "the compiler planned these by bytes alone: memory is slower than its data sheet",
    ELSEWHERE: "another program ran on the devices: look for other users of this machine",
}
_OF_COMPUTE = "the compiler's estimate is too low, or the chip is slow: compare `product` above"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedSteps:
    """Seconds of one step, by the clock and, of one device, by part; and the memory it takes.

    There are no parts of a process that traced nothing.
    """

    compile_seconds: float
    seconds: float
    parts: dict[str, float]
    peak_bytes: int | None


def check_steps(rehearsed: Rehearsed) -> Iterator[Finding]:
    """The step's time and memory beside the plan's, then each part's."""
    config = rehearsed.config
    program = program_of(config)
    shape = largest_shape(config)
    if rehearsed.plan is not None:
        check_plan(rehearsed.plan, program, shape)
    timed = timed_steps(program, shape, traced=rehearsed.processes.is_first)
    values: dict[str, Value] = {"seconds": timed.seconds, "compile_seconds": timed.compile_seconds}
    text = (
        f"{1e3 * timed.seconds:,.1f} ms, the mean of {STEPS}, for {shape.rows:,} rows of "
        f"{shape.src_length} + {shape.tgt_length}; compiled in {timed.compile_seconds:.0f} s"
    )
    if rehearsed.plan is None:
        advice = "without --plan there is nothing to compare with"
        yield noted("step time", text, advice, values)
        planned: dict[str, float] = {}
    else:
        yield _verdict(text, values, float(rehearsed.plan["step_seconds"]))
        yield from _memory(timed.peak_bytes, rehearsed.plan["needed_bytes"])
        planned = planned_parts(rehearsed.plan)
    if timed.parts:
        for part in side_by_side(planned, timed.parts):
            yield of_part(part, timed.seconds, has_plan=bool(planned))


def timed_steps(program: Program, shape: Shape, *, traced: bool) -> TimedSteps:
    """Compiles the step for `shape` and runs it twice ten times, the second time `traced`."""
    start = time.perf_counter()
    compiled = program.lower_train_step(shape).compile()
    compile_seconds = time.perf_counter() - start
    batch = full_batch(shape, program, longest=program.config.model.max_length)
    steps = _Steps(program, compiled, batch)
    steps.run(_WARM_UP)
    seconds = steps.run(STEPS) / STEPS
    parts: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="flaxformer-trace-") as folder:
        if traced:
            with jax.profiler.trace(folder):
                steps.run(STEPS)
            in_all = measured_parts(Path(folder), parse(compiled.as_text() or ""))
            times = STEPS * jax.local_device_count()
            parts = {name: total / times for name, total in in_all.items()}
        else:
            steps.run(STEPS)
    return TimedSteps(
        compile_seconds=compile_seconds,
        seconds=seconds,
        parts=parts,
        peak_bytes=(jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
    )


class _Steps:
    """Runs a compiled step again and again, as training does: without waiting in between."""

    def __init__(self, program: Program, compiled: Any, batch: Any) -> None:
        self._program, self._compiled, self._batch = program, compiled, batch
        self._state = program.init()

    def run(self, number: int) -> float:
        """Runs so many steps; returns how many seconds they took."""
        jax.block_until_ready(self._state)
        start = time.perf_counter()
        for _ in range(number):
            with on_mesh(self._program.mesh):
                batch = place_batch(self._batch, self._program.mesh)
                self._state, metrics = self._compiled(self._state, batch)
        jax.block_until_ready((self._state, metrics))
        return time.perf_counter() - start


def _verdict(text: str, values: Mapping[str, Value], planned: float) -> Finding:
    ratio = float(values["seconds"] or 0.0) / planned
    text += f"; planned {1e3 * planned:,.1f} ms: {ratio:.2f} times the plan"
    values = {**values, "planned": planned, "ratio": ratio}
    if ratio <= _TOO_SLOW:
        return noted("step time", text, values=values)
    advice = f"above {_TOO_SLOW:g} something is wrong: the parts below say where"
    return Finding("step time", "FAIL", text, advice, values)


def _memory(peak_bytes: int | None, planned_bytes: int) -> Iterator[Finding]:
    if not peak_bytes:
        return
    ratio = peak_bytes / planned_bytes
    text = f"{peak_bytes / _GIB:.2f} GiB at most; planned {planned_bytes / _GIB:.2f} GiB"
    advice = "the plan says less: leave more room in data.batch.tokens"
    values = {"peak": peak_bytes, "planned": planned_bytes, "ratio": ratio}
    yield noted("step memory", text, advice if ratio > _MEMORY_IS_MORE else "", values)


def of_part(part: PartTime, step_seconds: float, *, has_plan: bool) -> Finding:
    """One line of the comparison, with what a part that is slower than planned means."""
    text = f"{part.name:<32}{1e3 * part.measured:>9.2f} ms"
    values: dict[str, Value] = {f"{part.name} measured": part.measured}
    if not has_plan:
        return noted("step part", text, values=values)
    values[f"{part.name} planned"] = part.planned
    text += f", planned {1e3 * part.planned:>8.2f} ms"
    text += f": {part.ratio:.2f} times" if part.planned else ""
    is_slow = part.ratio > _TOO_SLOW
    is_noticeable = part.measured - part.planned > _NOTICEABLE * step_seconds
    advice = _MEANING.get(part.name, _OF_COMPUTE) if is_slow and is_noticeable else ""
    return noted("step part", text, advice, values)
