"""The compiler's estimate of a step's time, and a bound for what it doesn't estimate."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable

from flaxformer_mt.parallel.chips import Chip
from flaxformer_mt.planning.collectives import is_collective
from flaxformer_mt.planning.hlo import Instruction, Program, executions

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
class Place:
    """Where in the model an operation belongs; layers of a stack are one place. Phases besides the
    gradient's are `update`, `search` and the compiler's own, `compiler:`."""

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
    operations: tuple[Cost, ...]  # by place in the model, the most expensive first
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


def compute_costs(
    program: Program, chip: Chip, *, unknown_trips: int = 1, one_pass: bool = False
) -> Compute:
    """Operations of one run, with loops multiplied out, or of `one_pass` of an unbounded loop."""
    cycles: dict[Place, list[int]] = defaultdict(lambda: [0, 0])
    unknown: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    guessed = False
    for execution in executions(program, unknown_trips=unknown_trips):
        item, times = execution.instruction, execution.times
        guessed |= execution.guessed
        if one_pass and not execution.guessed:
            continue
        if execution.fused or is_collective(item) or item.opcode in _NO_WORK:
            continue
        target = item.attribute(r'custom_call_target="([^"]*)"')
        if execution.offloaded:
            entry = unknown[f"{_ON_SPARSECORE}{item.opcode}"]
            entry[1] += times * _moved(item, program.operand_bytes(execution.computation, item))
        elif item.cycles is not None:
            entry = cycles[place(item.op_name, item.opcode)]
            entry[1] += times * item.cycles
        elif item.opcode.endswith("-done") or target in _NO_WORK_TARGETS:
            continue  # a copy counts where it is started
        else:
            entry = unknown[f"{item.opcode} {target}" if target else item.opcode]
            operands = program.operand_bytes(execution.computation, item)
            entry[1] += times * _moved(item, operands)
        entry[0] += times
    total = sum(amount for _, amount in cycles.values())
    operations = []
    parts: dict[str, list[Cost]] = defaultdict(list)
    for at, (count, amount) in cycles.items():
        operations.append(Cost(str(at), count, amount / chip.clock))
        parts[part_of(at)].append(operations[-1])
    unestimated = [
        Cost(name, count, size / chip.hbm_bandwidth, size, _is_asynchronous(name))
        for name, (count, size) in unknown.items()
    ]
    return Compute(
        cycles=total,
        seconds=total / chip.clock,
        operations=_sorted(operations),
        parts=_sorted(
            Cost(name, sum(cost.count for cost in costs), sum(cost.seconds for cost in costs))
            for name, costs in parts.items()
        ),
        unestimated=_sorted(unestimated),
        guessed_loops=guessed,
    )


def _is_asynchronous(name: str) -> bool:
    return name.endswith("-start") or name.startswith(_ON_SPARSECORE)


def place(op_name: str, opcode: str) -> Place:
    """An instruction's place, from JAX's name of its operation."""
    parts = [part for part in op_name.split("/") if part]
    if not parts or not op_name.startswith("jit("):
        return Place("compiler:", (), opcode)
    if "rematted_computation" in op_name:
        phase = "recompute"
    elif "transpose(" in op_name:
        phase = "backward"
    elif "jvp(" in op_name:
        phase = "forward"
    else:
        phase = "update" if parts[0] == "jit(train_step)" else parts[0][4:-1].strip("_")
    # A wrapper may hold an einsum's name, as in `transpose(jvp(rld,vd->rlv))`.
    named = [_EINSUM.findall(part)[:1] if _WRAPPER.match(part) else [part] for part in parts]
    inner = [part for found in named for part in found]
    path = [part for part in inner[:-1] if not _LAYER.match(part)]
    # MODULE.METHOD follows MODULE.
    path = [part for n, part in enumerate(path) if not (n and part.split(".")[0] == path[n - 1])]
    path = [part for part in path if part not in _NOISE]
    modules = [part for part in path if "->" not in part]
    products = [part for part in path if "->" in part]
    # What is differentiated outside the model is the loss.
    if "jvp(" in op_name and "Transformer" not in op_name:
        modules.insert(0, "loss")
    return Place(phase, tuple(modules), (products or inner or parts)[-1])


def part_of(at: Place) -> str:
    """The innermost module of a place; attention by its products."""
    if at.phase == "compiler:":
        return "the compiler's own"
    if at.phase == "update":
        return "optimizer and metrics"
    if not at.modules:
        return "hypotheses" if at.phase == "search" else "other"
    modules = [module.split(".")[0] for module in at.modules]
    if at.modules[-1] == "Transformer.logits":
        return "logits"
    if modules[-1] in ("encoder", "decoder"):
        return "stacks of scanned layers"
    if any(module.endswith("_residual") for module in modules):
        return "residual sums, dropout, norms"
    module = next((m for m in reversed(modules) if m.endswith("attention")), modules[-1])
    if not module.endswith("attention"):
        return module
    if "->" not in at.operation:
        return "attention softmax, casts"
    # Products with d_model are projections, others are over heads.
    return "attention projections" if "d" in at.operation else "attention scores, weights"


def _moved(item: Instruction, operands: int) -> int:
    """Most bytes that an instruction reads and writes; `operands` are the bytes it takes."""
    if item.opcode.endswith("-start"):
        return abs(item.bytes - operands)  # its result holds the operand as well
    if item.opcode == "dynamic-update-slice":
        return 2 * max(operands - item.bytes, 0)  # in place: the piece, read and written
    if item.opcode in ("dynamic-slice", "slice", "broadcast", "iota"):
        return 2 * item.bytes
    return operands + item.bytes


def _sorted(costs: Iterable[Cost]) -> tuple[Cost, ...]:
    return tuple(sorted(costs, key=lambda cost: (-cost.seconds, cost.name)))
