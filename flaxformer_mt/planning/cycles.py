"""A TPU compiler's estimate of a step's time, and a bound for operations without an estimate."""

import dataclasses
from collections import defaultdict

from flaxformer_mt.parallel.chips import Chip
from flaxformer_mt.planning.collectives import collectives_inside, is_collective
from flaxformer_mt.planning.costs import (
    NO_WORK,
    Compute,
    Cost,
    OperationOrigin,
    by_part,
    dearest_first,
    origin_of,
)
from flaxformer_mt.planning.hlo import Execution, HloProgram, executions
from flaxformer_mt.planning.traffic import moved_bytes

# Memory that other instructions or asynchronous copies fill.
_NO_WORK_TARGETS = frozenset({"AllocateBuffer", "ConcatBitcast"})
_ON_SPARSECORE = "SparseCore "  # opens the names of operations there


@dataclasses.dataclass
class _Tally:
    """Executions of similar instructions, and the sum of their cycles or bytes."""

    count: int = 0
    amount: int = 0

    def add(self, times: int, amount: int) -> None:
        self.count += times
        self.amount += times * amount


def costs_by_cycles(
    program: HloProgram, chip: Chip, *, unknown_trips: int = 1, one_pass: bool = False
) -> Compute:
    """Operations of one run, with loops multiplied out, or of `one_pass` of an unbounded loop."""
    cycles: dict[OperationOrigin, _Tally] = defaultdict(_Tally)
    bytes_by_kind: dict[str, _Tally] = defaultdict(_Tally)
    guessed_loops = False
    for execution in executions(program, unknown_trips=unknown_trips):
        guessed_loops |= execution.guessed
        if (one_pass and not execution.guessed) or not _takes_time(program, execution):
            continue
        instruction = execution.instruction
        if instruction.cycles is not None and not execution.offloaded:
            origin = origin_of(instruction.op_name, instruction.opcode)
            cycles[origin].add(execution.times, instruction.cycles)
        else:
            size = moved_bytes(program, execution.computation, instruction)
            bytes_by_kind[_kind(execution)].add(execution.times, size)

    total_cycles = sum(tally.amount for tally in cycles.values())
    operations = {
        origin: Cost(str(origin), tally.count, tally.amount / chip.clock)
        for origin, tally in cycles.items()
    }
    unestimated = [
        Cost(
            kind,
            tally.count,
            tally.amount / chip.hbm_bandwidth,
            tally.amount,
            asynchronous=_is_asynchronous(kind),
        )
        for kind, tally in bytes_by_kind.items()
    ]
    return Compute(
        cycles=total_cycles,
        seconds=total_cycles / chip.clock,
        operations=dearest_first(operations.values()),
        parts=dearest_first(by_part(operations)),
        unestimated=dearest_first(unestimated),
        guessed_loops=guessed_loops,
    )


def seconds_by_cycles(program: HloProgram, chip: Chip, execution: Execution) -> float:
    """How long an instruction of the schedule computes, once; 0 for what runs beside the rest."""
    instruction = execution.instruction
    if execution.offloaded or not _takes_time(program, execution):
        return 0.0
    if instruction.cycles is not None:
        return instruction.cycles / chip.clock
    if _is_asynchronous(_kind(execution)):
        return 0.0
    return moved_bytes(program, execution.computation, instruction) / chip.hbm_bandwidth


def _takes_time(program: HloProgram, execution: Execution) -> bool:
    """Whether an instruction works by itself, and not only for a collective."""
    instruction = execution.instruction
    if execution.fused or is_collective(instruction) or instruction.opcode in NO_WORK:
        return False
    if execution.offloaded or instruction.cycles is not None:
        return True
    # A collective's fusion without a product; while bytes go out, its memory traffic goes on.
    if collectives_inside(program, instruction):
        return False
    # A copy counts where it is started.
    is_end = instruction.opcode.endswith("-done")
    return not is_end and instruction.custom_call_target not in _NO_WORK_TARGETS


def _kind(execution: Execution) -> str:
    """The name under which an instruction without an estimate is counted."""
    opcode = execution.instruction.opcode
    if execution.offloaded:
        return f"{_ON_SPARSECORE}{opcode}"
    target = execution.instruction.custom_call_target
    return f"{opcode} {target}" if target else opcode


def _is_asynchronous(name: str) -> bool:
    return name.endswith("-start") or name.startswith(_ON_SPARSECORE)
