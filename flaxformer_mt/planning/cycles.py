"""The compiler's estimate of a step's time, and a bound for operations without an estimate."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from flaxformer_mt.parallel.chips import Chip
from flaxformer_mt.planning.collectives import is_collective
from flaxformer_mt.planning.hlo import Execution, HloProgram, Instruction, executions

# No work of their own, or counted by their parts.
_NO_WORK = frozenset(
    "parameter constant tuple get-tuple-element bitcast while conditional call after-all "
    "opt-barrier add-dependency domain partition-id replica-id async-start async-update "
    "async-done call-start call-update call-done".split()
)
# Memory that other instructions or asynchronous copies fill.
_NO_WORK_TARGETS = frozenset({"AllocateBuffer", "ConcatBitcast"})
_ON_SPARSECORE = "SparseCore "  # opens the names of operations there
_LAYER = re.compile(r"^layers(_\d+)?(\..*)?$")  # one of a stack, or a method of it
# Transformations wrap modules' names.
_WRAPPER = re.compile(r"^(jit|jvp|transpose|vmap|custom_vjp_call|checkpoint|remat)\(")
_EINSUM = re.compile(r"[a-z]+,[a-z]+->[a-z]*")
_NOISE = frozenset(
    "while body cond closed_call checkpoint rematted_computation Transformer.encode "
    "Transformer.decode_step custom_vjp_call branch_0_fun".split()
)


@dataclasses.dataclass(frozen=True)
class OperationOrigin:
    """The part of the model that an operation comes from; all layers of a stack are one.

    Phases besides the gradient's are `update`, `search` and the compiler's own, `compiler:`.
    """

    phase: str
    modules: tuple[str, ...]  # from the outermost one, with the loss
    operation: str  # an einsum's letters, or the kind

    def __str__(self) -> str:  # `backward decoder/feed_forward bld,df->blf`
        return " ".join(filter(None, (self.phase, "/".join(self.modules), self.operation)))


@dataclasses.dataclass(frozen=True)
class Cost:
    """Executions of similar instructions in one step, and their total time."""

    name: str
    count: int
    seconds: float
    bytes: int = 0
    asynchronous: bool = False


@dataclasses.dataclass(frozen=True)
class Compute:
    """One step on one device, without collectives.

    `seconds` are estimated cycles over the clock. `unestimated` operations, mostly asynchronous
    copies from HBM to VMEM, are bounded by their bytes over the memory's bandwidth.
    `guessed_loops`: some loop's number of passes is unknown.
    """

    cycles: int
    seconds: float
    operations: tuple[Cost, ...]  # by origin in the model, the most expensive first
    parts: tuple[Cost, ...]  # the same by part of the model, forward and backward together
    unestimated: tuple[Cost, ...]
    guessed_loops: bool

    @property
    def unestimated_seconds(self) -> float:
        """Synchronous operations without an estimate."""
        return sum(cost.seconds for cost in self.unestimated if not cost.asynchronous)

    @property
    def copy_seconds(self) -> float:
        """All asynchronous copies."""
        return sum(cost.seconds for cost in self.unestimated if cost.asynchronous)

    @property
    def overlapped_seconds(self) -> float:
        """The step without collectives, if copies overlap the rest."""
        return max(self.seconds + self.unestimated_seconds, self.copy_seconds)


@dataclasses.dataclass
class _Tally:
    """Executions of similar instructions, and the sum of their cycles or bytes."""

    count: int = 0
    amount: int = 0

    def add(self, times: int, amount: int) -> None:
        self.count += times
        self.amount += times * amount


def compute_costs(
    program: HloProgram, chip: Chip, *, unknown_trips: int = 1, one_pass: bool = False
) -> Compute:
    """Operations of one run, with loops multiplied out, or of `one_pass` of an unbounded loop."""
    cycles: dict[OperationOrigin, _Tally] = defaultdict(_Tally)
    moved_bytes: dict[str, _Tally] = defaultdict(_Tally)
    guessed_loops = False
    for execution in executions(program, unknown_trips=unknown_trips):
        guessed_loops |= execution.guessed
        if (one_pass and not execution.guessed) or not _takes_time(execution):
            continue
        instruction = execution.instruction
        if instruction.cycles is not None and not execution.offloaded:
            origin = origin_of(instruction.op_name, instruction.opcode)
            cycles[origin].add(execution.times, instruction.cycles)
        else:
            operands = program.operand_bytes(execution.computation, instruction)
            moved_bytes[_kind(execution)].add(execution.times, _moved(instruction, operands))

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
            _is_asynchronous(kind),
        )
        for kind, tally in moved_bytes.items()
    ]
    return Compute(
        cycles=total_cycles,
        seconds=total_cycles / chip.clock,
        operations=_sorted(operations.values()),
        parts=_sorted(_by_part(operations)),
        unestimated=_sorted(unestimated),
        guessed_loops=guessed_loops,
    )


def _takes_time(execution: Execution) -> bool:
    """Whether an instruction works by itself, and not for a collective."""
    instruction = execution.instruction
    if execution.fused or is_collective(instruction) or instruction.opcode in _NO_WORK:
        return False
    if execution.offloaded or instruction.cycles is not None:
        return True
    # A copy counts where it is started.
    is_end = instruction.opcode.endswith("-done")
    return not is_end and _custom_call_target(instruction) not in _NO_WORK_TARGETS


def _kind(execution: Execution) -> str:
    """The name under which an instruction without an estimate is counted."""
    opcode = execution.instruction.opcode
    if execution.offloaded:
        return f"{_ON_SPARSECORE}{opcode}"
    target = _custom_call_target(execution.instruction)
    return f"{opcode} {target}" if target else opcode


def _custom_call_target(instruction: Instruction) -> str | None:
    return instruction.attribute(r'custom_call_target="([^"]*)"')


def _by_part(operations: Mapping[OperationOrigin, Cost]) -> Iterator[Cost]:
    costs_by_part: dict[str, list[Cost]] = defaultdict(list)
    for origin, cost in operations.items():
        costs_by_part[part_of(origin)].append(cost)
    for part, costs in costs_by_part.items():
        yield Cost(part, sum(cost.count for cost in costs), sum(cost.seconds for cost in costs))


def _is_asynchronous(name: str) -> bool:
    return name.endswith("-start") or name.startswith(_ON_SPARSECORE)


def origin_of(op_name: str, opcode: str) -> OperationOrigin:
    """An instruction's origin, from JAX's name of its operation."""
    if not op_name.startswith("jit("):
        return OperationOrigin("compiler:", (), opcode)

    names = [name for name in op_name.split("/") if name]
    unwrapped = _unwrapped(names)
    path = _module_path(unwrapped[:-1])
    modules = [name for name in path if "->" not in name]
    products = [name for name in path if "->" in name]
    # All that is differentiated outside the model is the loss.
    if "jvp(" in op_name and "Transformer" not in op_name:
        modules.insert(0, "loss")
    operation = (products or unwrapped or names)[-1]
    return OperationOrigin(_phase(op_name, names[0]), tuple(modules), operation)


def _phase(op_name: str, program: str) -> str:
    if "rematted_computation" in op_name:
        return "recompute"
    if "transpose(" in op_name:
        return "backward"
    if "jvp(" in op_name:
        return "forward"
    if program == "jit(train_step)":
        return "update"
    return program[len("jit(") : -1].strip("_")


def _unwrapped(names: Iterable[str]) -> list[str]:
    """The names, each wrapper's replaced by the einsum in it, if any.

    `transpose(jvp(rld,vd->rlv))` becomes `rld,vd->rlv`.
    """
    unwrapped: list[str] = []
    for name in names:
        unwrapped += _EINSUM.findall(name)[:1] if _WRAPPER.match(name) else [name]
    return unwrapped


def _module_path(names: Sequence[str]) -> list[str]:
    """Names of modules and products, without layers' numbers and JAX's own names."""
    unnumbered = [name for name in names if not _LAYER.match(name)]
    # MODULE.METHOD follows MODULE.
    return [
        name
        for name, previous in zip(unnumbered, [None, *unnumbered], strict=False)
        if name.split(".")[0] != previous and name not in _NOISE
    ]


def part_of(origin: OperationOrigin) -> str:
    """The innermost module of an origin; attention by its products."""
    if origin.phase == "compiler:":
        return "the compiler's own"
    if origin.phase == "update":
        return "optimizer and metrics"
    if not origin.modules:
        return "hypotheses" if origin.phase == "search" else "other"
    if origin.modules[-1] == "Transformer.logits":
        return "logits"

    modules = [module.split(".")[0] for module in origin.modules]
    if modules[-1] in ("encoder", "decoder"):
        return "stacks of scanned layers"
    if any(module.endswith("_residual") for module in modules):
        return "residual sums, dropout, norms"
    if any(module.endswith("attention") for module in modules):
        return _attention_part(origin.operation)
    return modules[-1]


def _attention_part(operation: str) -> str:
    if "->" not in operation:
        return "attention softmax, casts"
    # Products with d_model are projections, others are over heads.
    return "attention projections" if "d" in operation else "attention scores, weights"


def _moved(instruction: Instruction, operands: int) -> int:
    """Most bytes that an instruction reads and writes; `operands` are the bytes it takes."""
    if instruction.opcode.endswith("-start"):
        return abs(instruction.bytes - operands)  # its result holds the operand as well
    if instruction.opcode == "dynamic-update-slice":
        return 2 * max(operands - instruction.bytes, 0)  # in place: the piece, read and written
    if instruction.opcode in ("dynamic-slice", "slice", "broadcast", "iota"):
        return 2 * instruction.bytes
    return operands + instruction.bytes


def _sorted(costs: Iterable[Cost]) -> tuple[Cost, ...]:
    return tuple(sorted(costs, key=lambda cost: (-cost.seconds, cost.name)))
