"""Where arrays lie: rows of a batch over the data axes, parameters by their logical names."""

from __future__ import annotations

from typing import Any, TypeVar

import flax.linen as nn
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flaxformer_mt.parallel.mesh import RULES

Tree = TypeVar("Tree")


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over `data` and `fsdp`, the other axes whole."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def place_batch(batch: Tree, mesh: Mesh) -> Tree:
    """Host arrays `[rows, ...]` onto the mesh; rows must divide by the data axes' size."""
    return jax.device_put(batch, batch_sharding(mesh))


def shardings_of(abstract: Any, mesh: Mesh) -> Any:
    """Shardings of an abstract tree whose parameters still carry their logical axis names."""
    return nn.logical_to_mesh_sharding(nn.get_partition_spec(abstract), mesh, list(RULES))
