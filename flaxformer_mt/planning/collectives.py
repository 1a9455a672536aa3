"""A step's communication: bytes on each network, and the least time that they take."""

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.hlo import Execution, HloProgram, Instruction, executions
from flaxformer_mt.planning.topology import Topology, slice_numbers, usable_links

Groups = tuple[tuple[int, ...], ...]
_LISTED = re.compile(r"(?:source_target_pairs|replica_groups)=\{((?:\{[\d,]*\},?)*)\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=@?mesh\[([^\]]*)\](?:,? *device_ids=\(([^)]*(?:\([^)]*\))?)\))? *\{([^}]*)\}"
)
_AXIS = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")
KINDS = frozenset(
    "all-reduce all-gather reduce-scatter all-to-all ragged-all-to-all collective-permute "
    "collective-broadcast".split()
)


@dataclasses.dataclass(frozen=True)
class Route:
    """One network that a collective takes; on the device's part `sent` bytes go out by the best
    ring algorithm."""

    network: str  # "ICI": between chips of a slice; "DCN": between slices; "NVLink", "PCIe": GPUs
    sent: float
    seconds: float


@dataclasses.dataclass(frozen=True)
class Communication:
    """A collective where the program starts it; `bytes` go in, one route after the other."""

    execution: Execution
    kind: str
    bytes: int
    routes: tuple[Route, ...]

    @property
    def seconds(self) -> float:
        return sum(route.seconds for route in self.routes)


@dataclasses.dataclass(frozen=True)
class Collective:
    """All collectives of one kind on one network in a step, on one device."""

    kind: str
    network: str
    count: int
    bytes: int
    sent: float
    seconds: float


def is_collective(instruction: Instruction) -> bool:
    """Whether an instruction is part of a collective, or a transfer by hosts between slices."""
    opcode = instruction.opcode.removesuffix("-start").removesuffix("-done")
    is_transfer = opcode in ("send", "recv") and "xla_megascale" in instruction.rest
    return opcode in KINDS or is_transfer


@dataclasses.dataclass
class _Totals:
    """All collectives of one kind on one network so far."""

    count: int = 0
    bytes: int = 0
    sent: float = 0.0
    seconds: float = 0.0


def communications(
    program: HloProgram, topology: Topology, mesh: Mesh
) -> tuple[Communication, ...]:
    """The collectives of one run, each where it starts."""
    devices = list(mesh.devices.flat)
    found: list[Communication] = []
    for execution in _collective_executions(program):
        instruction = execution.instruction
        kind = _kind(execution)
        size = program.operand_bytes(execution.computation, instruction)
        if _is_send(instruction):
            routes = [_between_slices(kind, size, topology)]
        else:
            groups = replica_groups(instruction.rest, len(devices) // topology.slices)
            routes = [*_routes(kind, size, groups, topology, devices)]
        found.append(Communication(execution, kind, size, tuple(routes)))
    return tuple(found)


def collectives(found: Iterable[Communication]) -> tuple[Collective, ...]:
    """Their sums by kind and network, with loops multiplied out, slowest first."""
    totals: dict[tuple[str, str], _Totals] = defaultdict(_Totals)
    for communication in found:
        times = communication.execution.times
        for route in communication.routes:
            total = totals[communication.kind, route.network]
            total.count += times
            total.bytes += times * communication.bytes
            total.sent += times * route.sent
            total.seconds += times * route.seconds
    rows = [
        Collective(kind, network, total.count, total.bytes, total.sent, total.seconds)
        for (kind, network), total in totals.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _collective_executions(program: HloProgram) -> Iterator[Execution]:
    """Executions of collectives, each once, where it starts."""
    channels_in_pieces: set[str] = set()
    for execution in executions(program):
        instruction = execution.instruction
        if not is_collective(instruction) or instruction.opcode.endswith(("-done", "recv")):
            continue
        # One that overlaps several fusions is listed in each but sent once.
        if is_in_pieces(instruction):
            channel = channel_of(instruction)
            if channel in channels_in_pieces:
                continue
            channels_in_pieces.add(channel)
        yield execution


def is_in_pieces(instruction: Instruction) -> bool:
    """Whether several fusions carry on this collective beside products of their own."""
    return "chain_id=" in instruction.rest


def channel_of(instruction: Instruction) -> str:
    """The number that all parts of one collective share."""
    return instruction.attribute(r"channel_id=(\d+)") or ""


def collectives_inside(program: HloProgram, instruction: Instruction) -> list[Instruction]:
    """Those in the computation that a fusion or an asynchronous call runs."""
    called = instruction.called.get("calls") or instruction.called.get("to_apply")
    if called is None or instruction.opcode not in ("fusion", "async-start", "call-start"):
        return []
    return [inner for inner in program.computations[called].values() if is_collective(inner)]


def _is_send(instruction: Instruction) -> bool:
    return instruction.opcode.removesuffix("-start") == "send"


def _kind(execution: Execution) -> str:
    instruction = execution.instruction
    if _is_send(instruction):
        transfer = instruction.attribute(r'_xla_megascale_transfer_type="([A-Z_]+)"') or "SEND"
        return transfer.lower().replace("_", "-")
    kind = instruction.opcode.removesuffix("-start")
    # A TPU's reduce-scatter is an all-reduce in a fusion of that name.
    if kind == "all-reduce" and "all-reduce-scatter" in execution.computation:
        return "reduce-scatter"
    return kind


def _routes(
    kind: str, size: int, groups: Groups, topology: Topology, devices: list[jax.Device]
) -> Iterator[Route]:
    """The ways of one collective; two of them if it spans slices.

    Between slices each device sends its part of a reduce-scatter within its slice.
    """
    chip = topology.chip
    if kind == "collective-permute":
        slices = slice_numbers(devices)
        across = any(slices[pair[0]] != slices[pair[-1]] for pair in groups)
        network, bandwidth = (
            ("DCN", chip.dcn_bandwidth) if across else (chip.link, chip.link_bandwidth)
        )
        yield Route(network, float(size), size / bandwidth)
        return

    group = [devices[number] for number in max(groups, key=len)]
    slices = slice_numbers(group)
    slice_count = len(set(slices))
    slice_size = len(group) // slice_count
    if slice_size > 1:
        one_slice = [
            device for device, number in zip(group, slices, strict=True) if number == slices[0]
        ]
        sent = _sent(kind, size, slice_size)
        bandwidth = chip.link_bandwidth * usable_links(topology, one_slice)
        yield Route(chip.link, sent, sent / bandwidth)
    if slice_count > 1:
        piece = size / slice_size if kind in ("all-reduce", "reduce-scatter") else size
        yield _between_slices(kind, piece, topology)


def _between_slices(kind: str, size: float, topology: Topology) -> Route:
    sent = _sent(kind, size, topology.slices)
    return Route("DCN", sent, sent / topology.chip.dcn_bandwidth)


def _sent(kind: str, size: float, parties: int) -> float:
    """Bytes a device sends in a ring of `parties` when it puts in `size`."""
    share = (parties - 1) / parties
    factor = {"all-reduce": 2 * share, "all-gather": parties - 1.0}.get(kind, share)
    return size * factor


def expected_bytes(abstract_params: Any, mesh: Mesh, dtype: str) -> int | None:
    """Bytes that a device must send a step, gradients and parameters; None for `tensor` > 1.

    Matrices go in `dtype`, vectors in float32. For P bytes of parameters on `data` D and `fsdp` F:
    with F = 1 a ring's all-reduce of gradients, 2 P (D - 1) / D; with F > 1 parameters are gathered
    twice and gradients reduce-scattered, 3 P (F - 1) / F, and their parts all-reduced over `data`,
    2 (P / F) (D - 1) / D.
    """
    data, fsdp, tensor = (mesh.shape[axis] for axis in ("data", "fsdp", "tensor"))
    if tensor > 1:
        return None
    total = 0.0
    for leaf in jax.tree.leaves(abstract_params):
        itemsize = jnp.dtype(dtype if len(leaf.shape) > 1 else leaf.dtype).itemsize
        size = math.prod(leaf.shape) * itemsize
        part = math.prod(leaf.sharding.shard_shape(leaf.shape)) * itemsize
        if "data" in jax.tree.leaves(tuple(leaf.sharding.spec)):
            part *= data  # only kept there: the step gathers it
        if part < size:
            total += 3 * (size - part) + 2 * part * (data - 1) / data
        else:
            total += 2 * size * (data * fsdp - 1) / (data * fsdp)
    return round(total)


def replica_groups(attributes: str, devices: int) -> Groups:
    """The groups in a collective's attributes, or a permutation's (source, target) pairs.

    Devices are numbered as in `mesh.devices.flat` (of one slice); `devices` is the number of all.
    Raises PlanningError for a form that isn't one of XLA's three.
    """
    if match := _LISTED.search(attributes):
        groups = re.findall(r"\{([\d,]+)\}", match[1])
        return tuple(tuple(_numbers(group)) for group in groups) or (tuple(range(devices)),)
    if match := _IOTA.search(attributes):
        table = _iota(match[2], match[3]).reshape(_numbers(match[1]))
    elif match := _MESH.search(attributes):
        table = _mesh_groups(match[1], match[2], match[3])
    else:
        start = attributes.find("replica_groups=")
        excerpt = attributes[start : start + 100]
        raise PlanningError(f"cannot read which devices take part: {excerpt!r}")
    return tuple(map(tuple, table.tolist()))


def _mesh_groups(mesh: str, device_ids: str | None, axes: str) -> np.ndarray:
    """`mesh['a'=2,'b'=4] {'b'}`: one group per place along the other axes: [groups, devices]."""
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", mesh)}
    sides: list[int] = []  # the mesh, with an axis for each named part
    named_sides: list[int] = []  # which of these the groups run along
    for axis, size in sizes.items():
        for side, is_named in _axis_parts(axis, size, axes):
            if is_named:
                named_sides.append(len(sides))
            sides.append(side)
    unnamed_sides = [number for number in range(len(sides)) if number not in named_sides]

    order = _device_order(device_ids, math.prod(sizes.values()))  # [devices]
    grid = order.reshape(sides).transpose([*unnamed_sides, *named_sides])
    return grid.reshape(-1, math.prod(sides[number] for number in named_sides))


def _axis_parts(axis: str, size: int, axes: str) -> Iterator[tuple[int, bool]]:
    """Sizes into which a mesh axis is cut, major to minor, and whether `axes` names them.

    `'b':(2)2` names part of an axis: after 2, the next 2.
    """
    named_parts = sorted(
        (int(before or 1), int(part or size))
        for name, before, part in _AXIS.findall(axes)
        if name == axis
    )
    remaining = size
    for before, part in named_parts:
        skipped = before // (size // remaining)
        if skipped > 1:
            yield skipped, False
        yield part, True
        remaining //= skipped * part
    if remaining > 1 or not named_parts:
        yield remaining, False


def _device_order(device_ids: str | None, devices: int) -> np.ndarray:
    """Numbers of devices in a mesh; `device_ids` are `[4,2]T(1,0)`, numbers or, in order, None."""
    if device_ids is None:
        return np.arange(devices)
    match = re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\)?)?", device_ids.strip())
    return _iota(match[1], match[2]) if match else np.array(_numbers(device_ids))


def _iota(sizes: str, axes: str | None) -> np.ndarray:
    """Numbers from 0 in an array of these sizes, transposed."""
    order = np.arange(math.prod(_numbers(sizes))).reshape(_numbers(sizes))
    return order.transpose(_numbers(axes)) if axes else order


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
