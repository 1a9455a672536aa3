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
from flaxformer_mt.errors import UserError

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


class MeshError(UserError):
    """Mesh sizes that the devices at hand cannot form."""


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A mesh over `devices` (default: all); one axis may be -1, what is left.

    On TPUs neighbours in the mesh are neighbours on the chips' network, as far as its form allows.
    Slices, which only the data-centre network joins, are the outermost part of the data axis, the
    one with the least traffic: gradients once a step.

    Raises MeshError when the sizes do not multiply to the number of devices, or mesh.data is not a
    multiple of the number of slices.
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
    grid = _grid(devices, sizes)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _grid(devices: Sequence[jax.Device], sizes: Sequence[int]) -> np.ndarray:
    if devices[0].platform != "tpu":
        # In order of hosts, so that the tensor axis stays within one.
        return np.asarray(devices).reshape(sizes)
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    data, *others = sizes
    if data % slices:
        raise MeshError(
            f"'mesh.data' = {data} must be a multiple of the {slices} slices, which split the "
            "batch among them"
        )
    return mesh_utils.create_hybrid_device_mesh(
        (data // slices, *others),
        (slices, *(1 for _ in others)),
        devices,
        allow_split_physical_axes=True,
    )


def rows_split() -> int:
    """How many devices split a batch's rows on the mesh of `on_mesh`; 1 outside."""
    sizes = jax.sharding.get_abstract_mesh().shape
    return math.prod(sizes.get(axis, 1) for axis in ("data", "fsdp"))


def local_mesh() -> Mesh:
    """All devices of this process, on the data axis: for what each process computes by itself."""
    return make_mesh(MeshConfig(), jax.local_devices())


@contextlib.contextmanager
def on_mesh(mesh: Mesh) -> Iterator[None]:
    """Within it, logical axis names in the model mean the axes of `mesh`."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        yield
