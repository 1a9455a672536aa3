"""An estimate of a GPU's step: each kernel by the bytes it moves and the FLOPs of its products.

A GPU's compiler estimates no cycles. A kernel takes as long as its memory traffic or its products,
whichever is longer (the roofline of Williams et al., 2009), and its launch. For the paper's batch
on an H100 this gives 40 ms where 44 were measured (benchmarks/results/plan_gpu.json).
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator

from flaxformer_mt.parallel.chips import Chip
from flaxformer_mt.planning.collectives import is_collective
from flaxformer_mt.planning.costs import (
    CUDNN_ATTENTION,
    NO_WORK,
    Compute,
    Cost,
    OperationOrigin,
    by_part,
    dearest_first,
    origin_of,
)
from flaxformer_mt.planning.hlo import Execution, HloProgram, Instruction, executions
from flaxformer_mt.planning.traffic import Instructions, moved_bytes

# What kernels are taken to reach of the data sheet: of an H100's, 3.0 of 3.35 TB/s and 700 of 989.5
# TFLOP/s. There one large product measured 678 by JAX and 740 by PyTorch
# (benchmarks/results/first_contact.json); the bandwidth is a guess.
REACHED_BANDWIDTH = 0.895
REACHED_FLOPS = 0.707
LAUNCH_SECONDS = 2e-6

# Products of float32 operands run in TensorFloat-32, at half of bfloat16's rate.
_TF32_SHARE = 0.5
_CUDNN_ATTENTION = "__cudnn$fmha"
_QUERIES_OF_A_BLOCK = 128  # of cuDNN's kernel, which reads all keys and values once for each


@dataclasses.dataclass
class _Kernels:
    """Executions of similar kernels, and their sums."""

    count: int = 0
    bytes: int = 0
    flops: int = 0
    seconds: float = 0.0


def costs_by_roofline(
    program: HloProgram, chip: Chip, *, unknown_trips: int = 1, one_pass: bool = False
) -> Compute:
    """Kernels of one run, with loops multiplied out, or of `one_pass` of an unbounded loop."""
    kernels: dict[OperationOrigin, _Kernels] = defaultdict(_Kernels)
    guessed_loops = False
    for execution in executions(program, unknown_trips=unknown_trips):
        guessed_loops |= execution.guessed
        if (one_pass and not execution.guessed) or not _is_kernel(execution):
            continue
        moved, flops = _bytes(program, execution), _flops(program, execution)
        rate = _product_rate(program, execution)
        total = kernels[_origin(execution.instruction)]
        total.count += execution.times
        total.bytes += execution.times * moved
        total.flops += execution.times * flops
        total.seconds += execution.times * _seconds(chip, moved, flops, rate)

    operations = {
        origin: Cost(str(origin), total.count, total.seconds, total.bytes, total.flops)
        for origin, total in kernels.items()
    }
    return Compute(
        cycles=None,
        seconds=sum(cost.seconds for cost in operations.values()),
        operations=dearest_first(operations.values()),
        parts=dearest_first(by_part(operations)),
        unestimated=(),
        guessed_loops=guessed_loops,
    )


def seconds_by_roofline(program: HloProgram, chip: Chip, execution: Execution) -> float:
    """How long a kernel takes, once; 0 for what is none."""
    if not _is_kernel(execution):
        return 0.0
    moved, flops = _bytes(program, execution), _flops(program, execution)
    return _seconds(chip, moved, flops, _product_rate(program, execution))


def _is_kernel(execution: Execution) -> bool:
    instruction = execution.instruction
    if execution.fused or is_collective(instruction) or instruction.opcode in NO_WORK:
        return False
    return not instruction.opcode.endswith("-done")


def _seconds(chip: Chip, moved: int, flops: int, product_rate: float) -> float:
    moving = moved / (REACHED_BANDWIDTH * chip.hbm_bandwidth)
    multiplying = flops / (REACHED_FLOPS * product_rate * chip.bf16_flops)
    return max(moving, multiplying) + LAUNCH_SECONDS


def _origin(instruction: Instruction) -> OperationOrigin:
    """A kernel's place in the model; a library's kernel is an operation of its own."""
    origin = origin_of(instruction.op_name, instruction.opcode)
    if _is_attention(instruction):
        return dataclasses.replace(origin, operation=CUDNN_ATTENTION)
    return origin


def _is_attention(instruction: Instruction) -> bool:
    return (instruction.custom_call_target or "").startswith(_CUDNN_ATTENTION)


def _bytes(program: HloProgram, execution: Execution) -> int:
    """Bytes that a kernel reads and writes in the device's memory."""
    instruction = execution.instruction
    if instruction.opcode == "custom-call":
        outside = program.computations[execution.computation]
        operands = program.operand_bytes(execution.computation, instruction)
        return operands + _result_bytes(instruction) + _bytes_read_again(outside, instruction)
    return moved_bytes(program, execution.computation, instruction)


def _result_bytes(call: Instruction) -> int:
    """Of a library's function, without the scratch memory that ends its tuple of results."""
    return sum(size for kind, size in call.result_arrays if kind not in ("s8", "u8"))


def _bytes_read_again(outside: Instructions, call: Instruction) -> int:
    """What cuDNN's attention reads again: keys and values, for every block of queries but one.

    At most: much of it comes from the L2 cache.
    """
    if not _is_attention(call):
        return 0
    query, key, value = (outside[name] for name in call.operands[:3])
    blocks = math.ceil(query.sizes[1] / _QUERIES_OF_A_BLOCK)
    return (blocks - 1) * (key.bytes + value.bytes)


def _flops(program: HloProgram, execution: Execution) -> int:
    """FLOPs of the matrix products in a kernel."""
    instruction = execution.instruction
    instructions = program.computations[execution.computation]
    target = instruction.custom_call_target or ""
    if target.startswith("__cublas$"):
        return _cublas_flops(instructions, instruction)
    if _is_attention(instruction):
        return _attention_flops(instructions, instruction)
    return sum(flops for _, flops in _products(program, execution.computation, instruction))


def _product_rate(program: HloProgram, execution: Execution) -> float:
    """The rate of a kernel's products as a share of bfloat16's."""
    instruction = execution.instruction
    instructions = program.computations[execution.computation]
    if instruction.custom_call_target:
        operands = [instructions[name] for name in instruction.operands if name in instructions]
    else:
        products = _products(program, execution.computation, instruction)
        operands = [operand for operand, _ in products]
    is_float32 = any(operand.shape.startswith("f32") for operand in operands[:1])
    return _TF32_SHARE if is_float32 else 1.0


def _products(
    program: HloProgram, computation: str, instruction: Instruction
) -> Iterator[tuple[Instruction, int]]:
    """The left operand and the FLOPs of every product of an instruction and what is fused in it."""
    if instruction.opcode == "dot":
        left = program.computations[computation][instruction.operands[0]]
        axes = instruction.attribute(r"lhs_contracting_dims=\{([\d,]*)\}") or ""
        contracted = [left.sizes[int(axis)] for axis in axes.split(",") if axis]
        yield left, 2 * math.prod(instruction.sizes) * math.prod(contracted)
    if instruction.opcode == "fusion":
        called = instruction.called["calls"]
        for inner in program.computations[called].values():
            yield from _products(program, called, inner)


def _cublas_flops(instructions: Instructions, call: Instruction) -> int:
    axes = call.attribute(r'"lhs_contracting_dimensions":\[([^\]]*)\]') or ""
    left = instructions[call.operands[0]]
    contracted = [left.sizes[int(axis.strip('" '))] for axis in axes.split(",") if axis]
    return 2 * math.prod(call.sizes) * math.prod(contracted)


def _attention_flops(instructions: Instructions, call: Instruction) -> int:
    """Two products of queries by keys by d_k forward, five backward (Dao et al., 2022)."""
    query, key = (instructions[name] for name in call.operands[:2])
    product_flops = 2 * math.prod(query.sizes) * key.sizes[1]  # [rows, length, heads, d_k]
    return (5 if "Backward" in (call.custom_call_target or "") else 2) * product_flops
