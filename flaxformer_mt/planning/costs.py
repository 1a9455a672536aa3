"""What a step's operations cost, and the part of the model that each comes from."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

# No work of their own, or counted by their parts.
NO_WORK = frozenset(
    "parameter constant tuple get-tuple-element bitcast while conditional call after-all "
    "opt-barrier add-dependency domain partition-id replica-id async-start async-update "
    "async-done call-start call-update call-done".split()
)
_LAYER = re.compile(r"^layers(_\d+)?(\..*)?$")  # one of a stack, or a method of it
# Transformations wrap modules' names.
_WRAPPER = re.compile(r"^(jit|jvp|transpose|vmap|custom_vjp_call|checkpoint|remat)\(")
_EINSUM = re.compile(r"[a-z]+,[a-z]+->[a-z]*")
_NOISE = frozenset(
    "while body cond closed_call checkpoint rematted_computation Transformer.encode "
    "Transformer.decode_step custom_vjp_call branch_0_fun".split()
)


CUDNN_ATTENTION = "cuDNN attention"  # the operation of a kernel that is all of attention


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
    bytes: int = 0  # read and written; 0 where the compiler estimates cycles
    flops: int = 0  # of matrix products; 0 there too
    asynchronous: bool = False


@dataclasses.dataclass(frozen=True)
class Compute:
    """One step on one device, without collectives.

    `seconds` are the estimates of all `operations`: a TPU's cycles over the clock, or a GPU's
    kernels by their bytes and FLOPs. `unestimated` operations of a TPU, mostly asynchronous copies
    from HBM to VMEM, are bounded by their bytes over the memory's bandwidth. `guessed_loops`: some
    loop's number of passes is unknown.
    """

    cycles: int | None  # of a TPU
    seconds: float
    operations: tuple[Cost, ...]  # by origin in the model, the most expensive first
    parts: tuple[Cost, ...]  # the same by part of the model, forward and backward together
    unestimated: tuple[Cost, ...]
    guessed_loops: bool

    @property
    def kernels(self) -> int:
        """How many operations run, with their repetitions."""
        return sum(cost.count for cost in self.operations)

    @property
    def bytes(self) -> int:
        """Bytes read and written by all operations; 0 where the compiler estimates cycles."""
        return sum(cost.bytes for cost in self.operations)

    @property
    def flops(self) -> int:
        """FLOPs of all operations' matrix products; 0 where the compiler estimates cycles."""
        return sum(cost.flops for cost in self.operations)

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


def by_part(operations: Mapping[OperationOrigin, Cost]) -> Iterator[Cost]:
    """The costs of each part of the model, forward and backward together."""
    costs_by_part: dict[str, list[Cost]] = defaultdict(list)
    for origin, cost in operations.items():
        costs_by_part[part_of(origin)].append(cost)
    for part, costs in costs_by_part.items():
        yield added(part, costs)


def added(name: str, costs: Sequence[Cost]) -> Cost:
    """The sum of several costs, under one name."""
    return Cost(
        name,
        sum(cost.count for cost in costs),
        sum(cost.seconds for cost in costs),
        sum(cost.bytes for cost in costs),
        sum(cost.flops for cost in costs),
    )


def dearest_first(costs: Iterable[Cost]) -> tuple[Cost, ...]:
    return tuple(sorted(costs, key=lambda cost: (-cost.seconds, cost.name)))


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
    if operation == CUDNN_ATTENTION:
        return "attention kernel"
    if "->" not in operation:
        return "attention softmax, casts"
    # Products with d_model are projections, others are over heads.
    return "attention projections" if "d" in operation else "attention scores, weights"
