"""Which devices take part in a collective together: XLA's three ways of writing it, as lists.

A device is its number in the program's device assignment, the order of `mesh.devices.flat`. On
several slices the TPU compiler makes the program of one and numbers its devices alone.
"""

from __future__ import annotations

import math
import re

import numpy as np

from flaxformer_mt.planning.hlo import HloError

Groups = tuple[tuple[int, ...], ...]

_LISTED = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_MESH = re.compile(
    r"replica_groups=@?mesh\[([^\]]*)\](?:,? *device_ids=\(([^)]*(?:\([^)]*\))?)\))? *\{([^}]*)\}"
)
_AXIS = re.compile(r"'([^']+)'(?::\((\d+)\)(\d+))?")
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")


def replica_groups(attributes: str, devices: int) -> Groups:
    """The groups of a collective's attributes, or of a permutation the (source, target) pairs.

    `devices` is how many there are where the attributes say "all". Raises HloError for a form it
    does not know.
    """
    if found := _PAIRS.search(attributes) or _LISTED.search(attributes):
        groups = re.findall(r"\{([\d,]+)\}", "{" + found[1] + "}" if found[1] else "")
        listed = tuple(tuple(int(n) for n in group.split(",")) for group in groups)
        return listed or (tuple(range(devices)),)
    if found := _IOTA.search(attributes):
        return _rows(_iota(found[2], found[3]).reshape(_numbers(found[1])))
    if found := _MESH.search(attributes):
        return _mesh_groups(found[1], found[2], found[3])
    start = attributes.find("replica_groups=")
    raise HloError(f"cannot read which devices take part: {attributes[start : start + 100]!r}")


def _mesh_groups(mesh: str, device_ids: str | None, axes: str) -> Groups:
    """`mesh['a'=2,'b'=4] {'b'}`: one group for each place along the other axes.

    An axis may be a part of one, `'b':(2)2`: of what remains after 2 the next 2.
    """
    sizes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", mesh)}
    order = _device_order(device_ids) if device_ids else np.arange(math.prod(sizes.values()))
    parts: list[int] = []  # the mesh with every named part an axis of its own
    chosen: list[int] = []
    named = [(name, before, size) for name, before, size in _AXIS.findall(axes)]
    for axis, full in sizes.items():
        wanted = [(before, size) for name, before, size in named if name == axis]
        left = full
        for before, size in sorted((int(b or 1), int(s or full)) for b, s in wanted):
            skipped = before // (full // left)
            if skipped > 1:
                parts.append(skipped)
            chosen.append(len(parts))
            parts.append(size)
            left //= skipped * size
        if left > 1 or not wanted:
            parts.append(left)
    grid = order.reshape(parts)
    others = [axis for axis in range(len(parts)) if axis not in chosen]
    count = int(np.prod([parts[axis] for axis in chosen], dtype=int))
    return _rows(grid.transpose([*others, *chosen]).reshape(-1, count))


def _iota(sizes: str, axes: str | None) -> np.ndarray:
    """Numbers from 0 in an array of these sizes, transposed."""
    order = np.arange(math.prod(_numbers(sizes))).reshape(_numbers(sizes))
    return order.transpose(_numbers(axes)) if axes else order


def _device_order(text: str) -> np.ndarray:
    """`([4,2]T(1,0))` or plain numbers."""
    if found := re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\)?)?", text.strip()):
        return _iota(found[1], found[2]).ravel()
    return np.array(_numbers(text))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _rows(table: np.ndarray) -> Groups:
    return tuple(tuple(int(n) for n in row) for row in table)
