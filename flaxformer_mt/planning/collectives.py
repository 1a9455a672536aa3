"""A step's communication: what crosses which network, and the least time that takes."""

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.compiler import Topology, slice_numbers, usable_links
from flaxformer_mt.planning.hlo import Instruction, Program, executions

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
class Collective:
    """All collectives of one kind on one network in a step, on one device. `bytes` go in, `sent`
    bytes go out by the best ring algorithm."""

    kind: str
    network: str  # "ICI": between chips of a slice; "DCN": between slices
    count: int
    bytes: int
    sent: float
    seconds: float


def is_collective(item: Instruction) -> bool:
    """Whether an instruction is part of a collective, or a transfer by hosts between slices."""
    opcode = item.opcode.removesuffix("-start").removesuffix("-done")
    return opcode in KINDS or (opcode in ("send", "recv") and "xla_megascale" in item.rest)


def collectives(program: Program, topology: Topology, mesh: Mesh) -> tuple[Collective, ...]:
    """The collectives of one run, with loops multiplied out, slowest first."""
    devices = list(mesh.devices.flat)
    found: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    in_pieces: set[str] = set()
    for execution in executions(program):
        item = execution.instruction
        if not is_collective(item) or item.opcode.endswith(("-done", "recv")):
            continue
        # One that overlaps several fusions is listed in each but sent once.
        if "chain_id=" in item.rest:
            channel = item.attribute(r"channel_id=(\d+)") or ""
            if channel in in_pieces:
                continue
            in_pieces.add(channel)
        kind = item.opcode.removesuffix("-start")
        # A TPU's reduce-scatter is an all-reduce in a fusion of that name.
        if kind == "all-reduce" and "all-reduce-scatter" in execution.computation:
            kind = "reduce-scatter"
        size = program.operand_bytes(execution.computation, item)
        if kind == "send":
            transfer = item.attribute(r'_xla_megascale_transfer_type="([A-Z_]+)"') or "SEND"
            kind = transfer.lower().replace("_", "-")
            routes = [_between_slices(kind, size, topology)]
        else:
            groups = replica_groups(item.rest, len(devices) // topology.slices)
            routes = list(_routes(kind, size, groups, topology, devices))
        for network, sent, seconds in routes:
            entry = found[kind, network]
            for place, amount in enumerate((1, size, sent, seconds)):
                entry[place] += execution.times * amount
    rows = [
        Collective(kind, network, int(count), int(size), sent, seconds)
        for (kind, network), (count, size, sent, seconds) in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _routes(
    kind: str, size: int, groups: Groups, topology: Topology, devices: list[jax.Device]
) -> Iterator[tuple[str, float, float]]:
    """(network, bytes sent, seconds) of one collective; two if it spans slices, between which each
    device sends what it holds after a reduce-scatter within its slice."""
    chip = topology.chip
    if kind == "collective-permute":
        slices = slice_numbers(devices)
        across = any(slices[pair[0]] != slices[pair[-1]] for pair in groups)
        network, bandwidth = ("DCN", chip.dcn_bandwidth) if across else ("ICI", chip.link_bandwidth)
        yield network, float(size), size / bandwidth
        return
    group = [devices[n] for n in max(groups, key=len)]
    numbers = slice_numbers(group)
    spanned = len(set(numbers))
    inside = len(group) // spanned
    if inside > 1:
        first = [device for device, s in zip(group, numbers, strict=True) if s == numbers[0]]
        sent = _sent(kind, size, inside)
        yield "ICI", sent, sent / (chip.link_bandwidth * usable_links(topology, first))
    if spanned > 1:
        piece = size / inside if kind in ("all-reduce", "reduce-scatter") else size
        yield _between_slices(kind, piece, topology)


def _between_slices(kind: str, size: float, topology: Topology) -> tuple[str, float, float]:
    sent = _sent(kind, size, topology.slices)
    return "DCN", sent, sent / topology.chip.dcn_bandwidth


def _sent(kind: str, size: float, parties: int) -> float:
    """Bytes a device sends in a ring of `parties` when it puts in `size`."""
    others = (parties - 1) / parties
    factor = {"all-reduce": 2 * others, "all-gather": parties - 1.0}.get(kind, others)
    return size * factor


def expected_bytes(abstract_params: Any, mesh: Mesh, dtype: str) -> int | None:
    """What a device must send a step, gradients and parameters; None for `tensor` > 1.

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
        item = jnp.dtype(dtype if len(leaf.shape) > 1 else leaf.dtype).itemsize
        size = math.prod(leaf.shape) * item
        part = math.prod(leaf.sharding.shard_shape(leaf.shape)) * item
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
    if found := _LISTED.search(attributes):
        listed = re.findall(r"\{([\d,]+)\}", found[1])
        return tuple(tuple(_numbers(group)) for group in listed) or (tuple(range(devices)),)
    if found := _IOTA.search(attributes):
        table = _iota(found[2], found[3]).reshape(_numbers(found[1]))
    elif found := _MESH.search(attributes):
        table = _mesh_groups(found[1], found[2], found[3])
    else:
        start = attributes.find("replica_groups=")
        given = attributes[start : start + 100]
        raise PlanningError(f"cannot read which devices take part: {given!r}")
    return tuple(map(tuple, table.tolist()))


def _mesh_groups(mesh: str, device_ids: str | None, axes: str) -> np.ndarray:
    """`mesh['a'=2,'b'=4] {'b'}`: one group per place along the other axes. `'b':(2)2` is part of an
    axis: after 2, the next 2. `device_ids`: `[4,2]T(1,0)` or numbers."""
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", mesh)}
    if device_ids is None:
        order = np.arange(math.prod(sizes.values()))
    elif found := re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\)?)?", device_ids.strip()):
        order = _iota(found[1], found[2])
    else:
        order = np.array(_numbers(device_ids))
    parts: list[int] = []  # the mesh, with an axis for each named part
    chosen: list[int] = []
    for axis, full in sizes.items():
        wanted = sorted(
            (int(before or 1), int(size or full))
            for name, before, size in _AXIS.findall(axes)
            if name == axis
        )
        left = full
        for before, size in wanted:
            skipped = before // (full // left)
            if skipped > 1:
                parts.append(skipped)
            chosen.append(len(parts))
            parts.append(size)
            left //= skipped * size
        if left > 1 or not wanted:
            parts.append(left)
    others = [axis for axis in range(len(parts)) if axis not in chosen]
    grid = order.reshape(parts).transpose([*others, *chosen])
    return grid.reshape(-1, math.prod(parts[axis] for axis in chosen))


def _iota(sizes: str, axes: str | None) -> np.ndarray:
    """Numbers from 0 in an array of these sizes, transposed."""
    order = np.arange(math.prod(_numbers(sizes))).reshape(_numbers(sizes))
    return order.transpose(_numbers(axes)) if axes else order


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]
