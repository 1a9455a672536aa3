"""The device mesh and array placement: batches by rows, parameters by logical names."""

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from flaxformer_mt.config import MeshConfig
from flaxformer_mt.errors import UserError

Tree = TypeVar("Tree")
Table = Float[Array, "vocab d_model"]
Copies = Float[Array, "copies vocab d_model"]

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
    """A mesh over `devices` (default: all); one axis may be -1: all remaining.

    On TPUs neighbours in the mesh are neighbours on the chips' network where possible. Slices,
    which only the data-centre network joins, split the data axis, which has the least traffic.

    Raises MeshError if the sizes don't multiply to the number of devices, or mesh.data isn't a
    multiple of the number of slices.
    """
    devices = jax.devices() if devices is None else devices
    sizes = [config.data, config.fsdp, config.tensor]
    fixed = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and len(devices) % fixed == 0:
        sizes[sizes.index(-1)] = len(devices) // fixed
    if math.prod(sizes) != len(devices):
        product = " x ".join(f"{name} {size}" for name, size in zip(AXES, sizes, strict=True))
        raise MeshError(
            f"'mesh': {product} does not make {len(devices)} device(s); set one of mesh.data, "
            "mesh.fsdp, mesh.tensor to -1, or all three to fit"
        )
    # Auto axes: linen's sharding constraints are hints to the partitioner, not assertions.
    return Mesh(_grid(devices, sizes), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def _grid(devices: Sequence[jax.Device], sizes: Sequence[int]) -> np.ndarray:
    if devices[0].platform != "tpu":
        # In order of hosts: the tensor axis stays within one.
        return np.asarray(devices).reshape(sizes)
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices == 1:
        return mesh_utils.create_device_mesh(sizes, devices, allow_split_physical_axes=True)
    data, fsdp, tensor = sizes
    if data % slices:
        raise MeshError(f"'mesh.data' = {data} must be a multiple of the {slices} slices")
    return mesh_utils.create_hybrid_device_mesh(
        (data // slices, fsdp, tensor),
        (slices, 1, 1),
        devices,
        allow_split_physical_axes=True,
    )


def rows_split() -> int:
    """How many devices split a batch's rows, inside `on_mesh`; 1 outside."""
    sizes = jax.sharding.get_abstract_mesh().shape
    return math.prod(sizes.get(axis, 1) for axis in ("data", "fsdp"))


def local_mesh() -> Mesh:
    """All devices of this process on the data axis."""
    return make_mesh(MeshConfig(), jax.local_devices())


@contextlib.contextmanager
def on_mesh(mesh: Mesh) -> Iterator[None]:
    """Inside, the model's logical axis names mean axes of `mesh`."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(RULES):
        yield


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows over `data` and `fsdp`, the other axes whole."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def batch_share(mesh: Mesh) -> tuple[tuple[int, ...], int]:
    """The rows of a batch on this process's devices: which parts of how many equal ones.

    If a row's devices belong to several processes, each has that part.
    """
    if not mesh.is_multi_process:
        return (0,), 1
    # The axes are (data, fsdp, tensor): each row of this table holds one part's devices.
    parts = mesh.devices.reshape(-1, mesh.shape["tensor"])
    process = jax.process_index()
    numbers = [
        number
        for number, devices in enumerate(parts)
        if any(device.process_index == process for device in devices)
    ]
    return tuple(numbers), len(parts)


def place_batch(batch: Tree, mesh: Mesh) -> Tree:
    """Places this process's `batch_share` of a batch, host arrays `[rows, ...]`, onto the mesh."""
    sharding = batch_sharding(mesh)
    if not mesh.is_multi_process:
        return jax.device_put(batch, sharding)
    numbers, count = batch_share(mesh)

    def place(local: np.ndarray) -> jax.Array:
        size = len(local) // len(numbers)

        def part(index: Any) -> np.ndarray:
            start = numbers.index((index[0].start or 0) // size) * size
            return local[start : start + size]

        return jax.make_array_from_callback((size * count, *local.shape[1:]), sharding, part)

    return jax.tree.map(place, batch)


def place_whole(tree: Any, shardings: Any) -> Any:
    """Lays out host arrays that every process has whole by `shardings`."""

    def place(array: Any, sharding: NamedSharding) -> jax.Array:
        if sharding.is_fully_addressable:
            return jax.device_put(array, sharding)
        # To compare, `device_put` would gather every array from all processes.
        host_array = np.asarray(array)
        return jax.make_array_from_callback(
            host_array.shape, sharding, lambda index: host_array[index]
        )

    return jax.tree.map(place, tree, shardings)


def whole_on(tree: Tree, mesh: Mesh) -> Tree:
    """Arrays, each whole on every device of `mesh`, this process's own such as `local_mesh`.

    If arrays lie on several processes' devices, all must call it together.
    """
    sharding = NamedSharding(mesh, PartitionSpec())

    def on_own_devices(array: jax.Array) -> jax.Array:
        copies = {shard.device: shard.data for shard in array.addressable_shards}
        return jax.make_array_from_single_device_arrays(
            array.shape, sharding, [copies[device] for device in mesh.devices.flat]
        )

    leaves = jax.tree.leaves(tree)
    if all(leaf.is_fully_addressable for leaf in leaves if isinstance(leaf, jax.Array)):
        return jax.device_put(tree, sharding)
    everywhere = NamedSharding(leaves[0].sharding.mesh, PartitionSpec())
    replicate = jax.jit(lambda same: same, out_shardings=everywhere)
    return jax.tree.map(on_own_devices, replicate(tree))


def shardings_of(abstract: Any, mesh: Mesh) -> Any:
    """Shardings of an abstract tree with logical axis names. Raises MeshError for uneven splits."""
    specs = nn.get_partition_spec(abstract)
    shardings = nn.logical_to_mesh_sharding(specs, mesh, list(RULES))
    jax.tree.map_with_path(_check_even, without_names(abstract), shardings)
    return shardings


# For more parts, XLA's TPU compiler neither scatters gradients nor gathers parameters but sums
# whole arrays: 1.6 to 1.9 times the traffic (v5e 8x8, 16x16; 4x8: 1.0). A whole update is faster.
MOST_PARTS = 32


def spread_over_data(boxed: Any, shardings: Any) -> Any:
    """Shardings of arrays that only the update reads, heads or else the widest axis over `data`.

    `boxed` has the logical names of axes. Each device then updates and keeps the moments of its
    part (ZeRO stage 1, arXiv 1910.02054). Vectors and arrays without a divisible axis stay: parts
    of a bias cost more messages than they save. So does everything for `data` above MOST_PARTS.
    """

    def spread(box: Any, sharding: NamedSharding) -> NamedSharding:
        leaf = without_names(box)
        names = box.names if _is_box(box) else (None,) * leaf.ndim
        mesh, parts = sharding.mesh, sharding.mesh.shape["data"]
        spec = [*sharding.spec, *[None] * (leaf.ndim - len(sharding.spec))]
        divisible = [
            axis
            for axis, size in enumerate(leaf.shape)
            if _parts(mesh, spec[axis]) == 1 and size % parts == 0
        ]
        if not 1 < parts <= MOST_PARTS or leaf.ndim < 2 or not divisible:
            return sharding
        # Gathered by heads, a projection lies as its products read it (base on v5e:2x4: they take
        # 3.6 ms a step, gathered by d_model 4.8).
        split = max(divisible, key=lambda axis: (names[axis] == "heads", leaf.shape[axis]))
        spec[split] = "data"
        return NamedSharding(mesh, PartitionSpec(*spec))

    return jax.tree.map(spread, boxed, shardings, is_leaf=_is_box)


# In base's step on v5e:2x4, libtpu 0.0.42 makes an all-reduce, which sends twice as much, of a
# reduce-scatter into parts of 4,625 or 4,640 rows, and keeps that into 4,608 or 4,672.
_ROWS_OF_A_PART = 64


def copies(table: Table, count: int) -> Copies:
    """The table once for each of `count` parts of the rows; each device has the copy of its part.

    A copy collects its gradient from lookups and softmax where it arises, and the copies' gradients
    are summed once. Each use of a single table would be summed over all devices separately.
    """
    many = jnp.broadcast_to(table, (count, *table.shape))
    return nn.with_logical_constraint(many, ("batch", "vocab", None))


def can_scatter(vocab: int, part: NamedSharding) -> bool:
    """Whether `copies_with_scattered_sum` can sum a table of `vocab` rows into these parts."""
    mesh = part.mesh
    assert isinstance(mesh, Mesh)
    by_row = _parts(mesh, part.spec[0]) == mesh.shape["data"]
    is_on_tpu = mesh.devices.flat[0].platform == "tpu"
    return is_on_tpu and by_row and splits_data_only(mesh) and _lacks_at_most_a_part(vocab, mesh)


def splits_data_only(mesh: Mesh) -> bool:
    """Whether every device has whole parameters when it computes, and rows of its own."""
    return mesh.shape["data"] == mesh.size > 1


def _lacks_at_most_a_part(vocab: int, mesh: Mesh) -> bool:
    """Whether a device has all the rows that the previous one lacks; see `_part_of_sum`."""
    count = mesh.shape["data"]
    summed_rows = _rows_summed(vocab // count)
    return vocab - count * summed_rows <= summed_rows


def _rows_summed(rows: int) -> int:
    return rows // _ROWS_OF_A_PART * _ROWS_OF_A_PART


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def copies_with_scattered_sum(table: Table, count: int) -> Copies:
    """As `copies`; a device receives the sum of its part of the gradient only.

    The partitioner sums whole arrays, and hopes that a later pass notices what is read of them.
    """
    return copies(table, count)


def _forward(table: Table, count: int) -> tuple[Copies, None]:
    return copies(table, count), None


def _backward(count: int, _: None, gradient: Copies) -> tuple[Table]:
    by_row = PartitionSpec("data")
    summed = jax.shard_map(_part_of_sum, in_specs=by_row, out_specs=by_row, check_vma=False)
    return (summed(gradient),)


def _part_of_sum(own: Copies) -> Table:
    """A device's part of the sum over `data` of all devices' [1, vocab, d_model].

    The devices sum parts of a size that suits the network. What each then lacks, the next one has
    too much; the last one finds it in the table's end, which all sum.
    """
    count, vocab = jax.lax.axis_size("data"), own.shape[1]
    rows = vocab // count
    summed_rows = _rows_summed(rows)
    scattered = count * summed_rows
    summed = jax.lax.psum_scatter(own[0, :scattered], "data", scatter_dimension=0, tiled=True)
    if scattered == vocab:
        return summed

    end = jax.lax.psum(own[0, scattered:], "data")
    to_previous = [(device, device - 1) for device in range(1, count)]
    following = jax.lax.ppermute(summed[: len(end)], "data", to_previous)
    index = jax.lax.axis_index("data")
    following = jnp.where(index == count - 1, end, following)
    start = (rows - summed_rows) * index
    return jax.lax.dynamic_slice_in_dim(jnp.concatenate([summed, following]), start, rows)


copies_with_scattered_sum.defvjp(_forward, _backward)


def without_names(abstract: Any) -> Any:
    """An abstract tree without its logical axis names. (`nn.unbox` would ask for shardings.)"""
    return jax.tree.map(
        lambda leaf: leaf.value if _is_box(leaf) else leaf, abstract, is_leaf=_is_box
    )


def _is_box(leaf: Any) -> bool:
    return isinstance(leaf, nn.LogicallyPartitioned)


def _check_even(path: Any, leaf: Any, sharding: NamedSharding) -> None:
    for size, over in zip(leaf.shape, sharding.spec, strict=False):
        parts = _parts(sharding.mesh, over)
        if size % parts:
            axes = (over,) if isinstance(over, str) else over
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise MeshError(
                f"'mesh': {name} {list(leaf.shape)} cannot be split evenly over "
                f"{' x '.join(axes)} = {parts}: change the mesh, or the axis of {size} (of a "
                f"vocabulary: model.vocab_multiple = {parts})"
            )


def _parts(mesh: Mesh | AbstractMesh, over: Any) -> int:
    axes = (over,) if isinstance(over, str) else over or ()
    return math.prod(mesh.shape[axis] for axis in axes)
