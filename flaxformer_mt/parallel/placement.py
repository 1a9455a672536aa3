"""Where arrays lie: rows of a batch over the data axes, parameters by their logical names."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import flax.linen as nn
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flaxformer_mt.parallel.mesh import RULES, MeshError

Tree = TypeVar("Tree")


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over `data` and `fsdp`, the other axes whole."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def place_batch(batch: Tree, mesh: Mesh) -> Tree:
    """Host arrays `[rows, ...]` onto the mesh; rows must divide by the data axes' size."""
    return jax.device_put(batch, batch_sharding(mesh))


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
