"""Where the time of real steps went, by the same parts as a plan's, from a profiler's trace."""

import dataclasses
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jax.profiler import ProfileData

from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.collectives import is_collective
from flaxformer_mt.planning.costs import NO_WORK, origin_of, part_of
from flaxformer_mt.planning.hlo import HloProgram, Instruction

COLLECTIVES = "collectives that nothing hides"
UNESTIMATED = "operations without an estimate"
ELSEWHERE = "outside the step's program"
# An event of a TPU is named by its instruction's text.
_INSTRUCTION = re.compile(r"%?([\w.\-]+)")
_TPU_LINE = "XLA Ops"


@dataclasses.dataclass(frozen=True)
class PartTime:
    """Seconds of one step on one device."""

    name: str
    planned: float
    measured: float

    @property
    def ratio(self) -> float:
        """Measured over planned; infinite if nothing was planned."""
        return self.measured / self.planned if self.planned else float("inf")


def planned_parts(plan: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of each part of a step, from a plan's JSON, with communication."""
    compute = plan["compute"]
    parts = {part["name"]: float(part["seconds"]) for part in compute["parts"]}
    parts[UNESTIMATED] = sum(
        cost["seconds"] for cost in compute["unestimated"] if not cost["asynchronous"]
    )
    parts[COLLECTIVES] = plan["exposed"]["most"]
    return {name: seconds for name, seconds in parts.items() if seconds}


def measured_parts(trace: Path, program: HloProgram) -> dict[str, float]:
    """Seconds by part of everything that a trace's devices did; `trace` is a profile's folder.

    `program` is the compiled step that ran. Loops and calls don't count themselves, only what they
    run. Raises PlanningError if the trace has no operation of a device.
    """
    instructions = {
        name: instruction
        for computation in program.computations.values()
        for name, instruction in computation.items()
    }
    has_cycles = any(instruction.cycles is not None for instruction in instructions.values())
    seconds: dict[str, float] = defaultdict(float)
    with warnings.catch_warnings():
        # Python 3.12 warns of a type of jaxlib 0.12's that names no module; were the warning an
        # error, it would end the process.
        warnings.simplefilter("ignore", DeprecationWarning)
        operations = list(_operations(trace))
    for name, duration in operations:
        instruction = instructions.get(name)
        if instruction is None:
            seconds[ELSEWHERE] += duration
        elif instruction.opcode not in NO_WORK:
            seconds[_part(instruction, has_cycles)] += duration
    if not seconds:
        raise PlanningError("the profiler's trace has no operation of a device")
    return dict(seconds)


def side_by_side(planned: Mapping[str, float], measured: Mapping[str, float]) -> list[PartTime]:
    """All parts, what took longest first."""
    names = {*planned, *measured}
    parts = [PartTime(name, planned.get(name, 0.0), measured.get(name, 0.0)) for name in names]
    return sorted(parts, key=lambda part: (-part.measured, part.name))


def _part(instruction: Instruction, has_cycles: bool) -> str:
    if is_collective(instruction):
        return COLLECTIVES
    if has_cycles and instruction.cycles is None:
        return UNESTIMATED
    return part_of(origin_of(instruction.op_name, instruction.opcode))


def _operations(trace: Path) -> Iterator[tuple[str, float]]:
    """The names of the instructions that devices executed, each with its seconds."""
    for path in sorted(trace.rglob("*.xplane.pb")):
        for plane in ProfileData.from_file(str(path)).planes:
            is_tpu = plane.name.startswith("/device:TPU:")
            for line in plane.lines:
                if is_tpu and line.name != _TPU_LINE:
                    continue  # the same time again, by step, by program or by source line
                for event in line.events:
                    if name := _instruction_name(event, is_tpu):
                        yield name, event.duration_ns / 1e9


def _instruction_name(event: Any, is_tpu: bool) -> str | None:
    """None for an event that is no operation of a device."""
    if is_tpu:
        match = _INSTRUCTION.match(event.name)
        return match[1] if match else None
    return next((str(value) for key, value in event.stats if key == "hlo_op"), None)
