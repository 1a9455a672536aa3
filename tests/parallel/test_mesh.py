"""Which meshes the devices at hand can form, and what is said of the others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from flaxformer_mt.config import MeshConfig
from flaxformer_mt.parallel.mesh import AXES, RULES, batch_sharding, make_mesh, on_mesh, place_batch


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (MeshConfig(), (8, 1, 1)),
        (MeshConfig(fsdp=4), (2, 4, 1)),
        (MeshConfig(data=1, fsdp=-1, tensor=2), (1, 4, 2)),
        (MeshConfig(data=1, fsdp=1, tensor=8), (1, 1, 8)),
    ],
)
def test_minus_one_is_what_is_left(config, shape):
    devices = np.array([jax.devices()[0]] * 8, dtype=object)
    # A mesh of one device eight times could not compute, but its shape can be looked at.
    mesh = make_mesh(config, devices)
    assert mesh.devices.shape == shape
    assert mesh.axis_names == AXES == ("data", "fsdp", "tensor")
    assert mesh.axis_types == (AxisType.Auto,) * 3


def test_rules_lead_to_axes_of_the_mesh():
    names = [name for name, _ in RULES]
    assert len(set(names)) == len(names)
    targets = {
        axis for _, axes in RULES for axis in ((axes,) if isinstance(axes, str) else axes or ())
    }
    assert targets == set(AXES)


def test_a_batch_is_split_over_its_rows():
    mesh = make_mesh(MeshConfig())
    assert batch_sharding(mesh).spec == PartitionSpec(("data", "fsdp"))
    rows = np.arange(6, dtype=np.int32).reshape(3, 2)
    placed = place_batch({"a": rows}, mesh)["a"]
    assert placed.sharding == batch_sharding(mesh)
    np.testing.assert_array_equal(placed, rows)


def test_a_mesh_holds_within_its_block_alone():
    with on_mesh(make_mesh(MeshConfig())):
        assert jax.sharding.get_abstract_mesh().axis_names == AXES
        assert float(jnp.ones(())) == 1
    assert jax.sharding.get_abstract_mesh().axis_names == ()
