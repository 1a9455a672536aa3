"""Communication of a step: what goes over which network, and how long that takes at best."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import defaultdict
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from flaxformer_mt.planning.hlo import Instruction, Program, executions
from flaxformer_mt.planning.replica_groups import Groups, replica_groups
from flaxformer_mt.planning.topology import Topology, slice_numbers, usable_links

_TRANSFER = re.compile(r'_xla_megascale_transfer_type="([A-Z_]+)"')
KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)


@dataclasses.dataclass(frozen=True)
class Collective:
    """All collectives of one kind on one network in a step, on one device.

    `bytes` is what the device puts in, `sent` what it sends by the best ring algorithm and
    `seconds` the time for that at the full bandwidth of the links in use, with nothing beside it.
    """

    kind: str
    network: str  # "ICI": between chips of a slice; "DCN": between slices
    count: int
    bytes: int
    sent: float
    seconds: float


def is_collective(item: Instruction) -> bool:
    """Whether an instruction is part of a collective; `-start` and `-done` forms are, too.

    Between slices the TPU compiler turns a collective into transfers by way of the hosts.
    """
    opcode = item.opcode.removesuffix("-start").removesuffix("-done")
    return opcode in KINDS or (opcode in ("send", "recv") and "xla_megascale" in item.rest)


def collectives(
    program: Program, topology: Topology, mesh: Mesh, *, unknown_trips: int = 1
) -> tuple[Collective, ...]:
    """The collectives of one run, loops multiplied out, the slowest first. Raises HloError."""
    devices = list(mesh.devices.flat)
    found: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0, 0.0, 0.0])
    for execution in executions(program, unknown_trips=unknown_trips):
        item = execution.instruction
        if not is_collective(item) or item.opcode.endswith(("-done", "recv")):
            continue
        kind = item.opcode.removesuffix("-start")
        # A TPU's reduce-scatter: an all-reduce in a fusion of that name that keeps its own part.
        if kind == "all-reduce" and "all-reduce-scatter" in execution.computation:
            kind = "reduce-scatter"
        size = program.operand_bytes(execution.computation, item)
        if kind == "send":
            transfer = _TRANSFER.search(item.rest)
            kind = transfer[1].lower().replace("_", "-") if transfer else "send"
            routes = [_between_slices(kind, size, topology)]
        else:
            groups = replica_groups(item.rest, len(devices) // topology.slices)
            routes = _routes(kind, size, groups, topology, devices)
        for network, sent, seconds in routes:
            entry = found[kind, network]
            entry[0] += execution.times
            entry[1] += execution.times * size
            entry[2] += execution.times * sent
            entry[3] += execution.times * seconds
    rows = [
        Collective(kind, network, int(count), int(size), sent, seconds)
        for (kind, network), (count, size, sent, seconds) in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _routes(
    kind: str, size: int, groups: Groups, topology: Topology, devices: list[jax.Device]
) -> list[tuple[str, float, float]]:
    """(network, bytes sent, seconds) of one collective: two entries where it spans slices.

    Across slices the pieces that the devices of a slice hold after a reduce-scatter among them go
    over the data-centre network, each device sending its own.
    """
    if kind == "collective-permute":
        slices = slice_numbers(devices)
        crosses = any(slices[pair[0]] != slices[pair[-1]] for pair in groups)
        chip = topology.chip
        bandwidth = chip.dcn_bandwidth if crosses else chip.link_bandwidth
        return [("DCN" if crosses else "ICI", float(size), size / bandwidth)]
    group = max(groups, key=len)
    if len(group) == 1:
        return []
    numbers = slice_numbers([devices[n] for n in group])
    spanned = len(set(numbers))
    inside = len(group) // spanned
    routes = []
    if inside > 1:
        first = [devices[n] for n, s in zip(group, numbers, strict=True) if s == numbers[0]]
        sent = _sent(kind, size, inside)
        bandwidth = topology.chip.link_bandwidth * usable_links(topology, first)
        routes.append(("ICI", sent, sent / bandwidth))
    if spanned > 1:
        piece = size / inside if kind in ("all-reduce", "reduce-scatter") else size
        routes.append(_between_slices(kind, piece, topology))
    return routes


def _between_slices(kind: str, size: float, topology: Topology) -> tuple[str, float, float]:
    sent = _sent(kind, size, topology.slices)
    return "DCN", sent, sent / topology.chip.dcn_bandwidth


def _sent(kind: str, size: float, parties: int) -> float:
    """Bytes a device sends in a ring of `parties` when it puts in `size`."""
    others = (parties - 1) / parties
    factor = {"all-reduce": 2 * others, "all-gather": parties - 1.0}.get(kind, others)
    return size * factor


def expected_bytes(abstract_params: Any, mesh: Mesh) -> int | None:
    """What a device must send a step: float32 gradients and parameters; None: no formula.

    With P bytes of parameters, of which a device holds P / fsdp: on a mesh of `data` D and `fsdp`
    F, the gradients are summed once. F = 1: 2 P (D - 1) / D, a ring's all-reduce. F > 1: every
    parameter that `fsdp` splits is gathered for the forward and for the backward pass and its
    gradient reduce-scattered, 3 P (F - 1) / F, and the parts are all-reduced over `data`,
    2 (P / F) (D - 1) / D. With `tensor` > 1 activations are exchanged as well: no formula here.
    """
    data, fsdp, tensor = (mesh.shape[axis] for axis in ("data", "fsdp", "tensor"))
    if tensor > 1:
        return None
    total = 0.0
    for leaf in jax.tree.leaves(abstract_params):
        size = math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize
        part = math.prod(leaf.sharding.shard_shape(leaf.shape)) * np.dtype(leaf.dtype).itemsize
        if part < size:
            total += 3 * (size - part) + 2 * part * (data - 1) / data
        else:
            total += 2 * size * (data * fsdp - 1) / (data * fsdp)
    return round(total)
