"""Where arrays lie: rows of a batch over the data axes, parameters by their logical names."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import flax.linen as nn
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flaxformer_mt.parallel.mesh import RULES, MeshError

Tree = TypeVar("Tree")


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over `data` and `fsdp`, the other axes whole."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def batch_share(mesh: Mesh) -> tuple[int, int]:
    """The rows of a batch that lie on this process's devices: `(number, count)`.

    They are part `number` of `count` equal ones. Where a row's devices belong to several processes,
    those share a part. Where the mesh leaves a process rows that are no such part, they are picked
    from the whole batch: (0, 1).
    """
    # The axes are (data, fsdp, tensor): each row of this table holds one block of rows.
    blocks = mesh.devices.reshape(-1, mesh.shape["tensor"])
    here = jax.process_index()
    mine = [
        number
        for number, devices in enumerate(blocks)
        if any(device.process_index == here for device in devices)
    ]
    first, size, count = mine[0], len(mine), len(blocks)
    if mine != list(range(first, first + size)) or count % size or first % size:
        return 0, 1
    return first // size, count // size


def place_batch(batch: Tree, mesh: Mesh, *, parts: int = 1) -> Tree:
    """Host arrays `[rows, ...]` onto the mesh; rows must divide by the data axes' size.

    They are one of `parts` equal parts of the batch, this process's as `batch_share` says, or, with
    1, the whole batch.
    """
    sharding = batch_sharding(mesh)
    if not mesh.is_multi_process:
        return jax.device_put(batch, sharding)

    def place(local: np.ndarray) -> jax.Array:
        shape = (local.shape[0] * parts, *local.shape[1:])
        return jax.make_array_from_process_local_data(sharding, local, shape)

    return jax.tree.map(place, batch)


def place_whole(tree: Any, shardings: Any) -> Any:
    """Arrays that every process has whole, laid out by `shardings`."""

    def place(array: Any, sharding: NamedSharding) -> jax.Array:
        if sharding.is_fully_addressable:
            return jax.device_put(array, sharding)
        whole = np.asarray(array)
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])

    return jax.tree.map(place, tree, shardings)


def whole_here(tree: Tree, mesh: Mesh) -> Tree:
    """Arrays of any layout on `mesh`, whole, on one device of this process.

    All processes must call it together.
    """
    whole = jax.jit(_same, out_shardings=NamedSharding(mesh, PartitionSpec()))(tree)
    return jax.tree.map(lambda array: array.addressable_data(0), whole)


def _same(tree: Tree) -> Tree:
    return tree


def shardings_of(abstract: Any, mesh: Mesh) -> Any:
    """Shardings of an abstract tree whose parameters still carry their logical axis names.

    Raises MeshError for an array with an axis that the devices which split it do not divide.
    """
    specs = nn.get_partition_spec(abstract)
    shardings = nn.logical_to_mesh_sharding(specs, mesh, list(RULES))
    jax.tree.map_with_path(_check_even, without_names(abstract), shardings)
    return shardings


def without_names(abstract: Any) -> Any:
    """An abstract tree without its logical axis names.

    Not `nn.unbox`, which asks for the sharding that the names mean: abstract arrays have none.
    """

    def value(leaf: Any) -> Any:
        return leaf.value if isinstance(leaf, nn.LogicallyPartitioned) else leaf

    return jax.tree.map(
        value, abstract, is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned)
    )


def _check_even(path: Any, leaf: Any, sharding: NamedSharding) -> None:
    for size, over in zip(leaf.shape, sharding.spec, strict=False):
        axes = (over,) if isinstance(over, str) else over or ()
        parts = math.prod(sharding.mesh.shape[axis] for axis in axes)
        if size % parts:
            raise MeshError(
                f"'mesh': {jax.tree_util.keystr(path, simple=True, separator='/')} "
                f"{list(leaf.shape)} cannot be split evenly over {' x '.join(axes)} = {parts}: "
                f"choose a size that {parts} divides for its axis of {size}, or another mesh"
            )
