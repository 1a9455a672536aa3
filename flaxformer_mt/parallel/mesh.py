"""Devices in a grid, and which logical axis of an array is split over which side of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import flax.linen as nn
import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh

from flaxformer_mt.config import MeshConfig

AXES = ("data", "fsdp", "tensor")

# Logical axis -> mesh axis. The first row whose mesh axis an array does not use yet wins.
RULES: tuple[tuple[str, str | tuple[str, ...] | None], ...] = (
    ("batch", ("data", "fsdp")),
    ("vocab", "tensor"),
    ("heads", "tensor"),
    ("mlp", "tensor"),
    ("embed", "fsdp"),
    ("length", None),
    ("beam", None),
    ("kv", None),
    ("act_embed", None),
    ("layers", None),
)


class MeshError(ValueError):
    """Mesh sizes that the devices at hand cannot form."""


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh over `devices` (default: all); one axis may be -1, what is left.

    On TPUs neighbours in the mesh are neighbours on the network, and slices, which only the
    data-centre network connects, are the outermost part of `data`. Raises MeshError when the sizes
    do not multiply to the number of devices, or `data` to that of slices.
    """
    devices = jax.devices() if devices is None else devices
    sizes = [config.data, config.fsdp, config.tensor]
    fixed = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and len(devices) % fixed == 0:
        sizes[sizes.index(-1)] = len(devices) // fixed
    if math.prod(sizes) != len(devices):
        asked = " x ".join(f"{name} {size}" for name, size in zip(AXES, sizes, strict=True))
        raise MeshError(
            f"'mesh': {asked} does not make {len(devices)} device(s); set one of mesh.data, "
            "mesh.fsdp, mesh.tensor to -1, or all three so that their product is the number of "
            "devices"
        )
    # Auto axes: linen's sharding constraints are hints to the partitioner, not assertions.
    return Mesh(_grid(sizes, devices), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _grid(sizes: list[int], devices: Sequence[jax.Device]) -> np.ndarray:
    if devices[0].platform != "tpu":
        return np.asarray(devices).reshape(sizes)
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if sizes[0] % slices:
        raise MeshError(
            f"'mesh.data' = {sizes[0]} must be divisible by the number of slices, {slices}: only "
            "the batch is split over the data-centre network"
        )
    # Sides of the mesh that are no sides of the slice are laid over it in pieces.
    if slices == 1:
        return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    inner = (sizes[0] // slices, *sizes[1:])
    return mesh_utils.create_hybrid_device_mesh(
        inner, (slices, 1, 1), devices, allow_split_physical_axes=True
    )


@contextlib.contextmanager
def on_mesh(mesh: Mesh) -> Iterator[None]:
    """Within it, logical axis names in the model mean the axes of `mesh`."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        yield
