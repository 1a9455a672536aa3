"""A checkpoint of any mesh is restored on any other, bit for bit and with the same digests."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap

import jax
import numpy as np
import pytest

from flaxformer_mt.rundir.checkpoint_choice import KeepPolicy
from flaxformer_mt.rundir.checkpoints import Checkpoints, load_params
from tests.rundir.snapshots import ENVIRONMENT, abstract, assert_same, snapshot

# Eight devices are a matter of the whole process.
EIGHT = """
    import dataclasses, sys
    from pathlib import Path
    import jax, numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
    from tests.rundir.snapshots import assert_same, snapshot
    from flaxformer_mt.rundir.checkpoints import Checkpoints, load_params
    from flaxformer_mt.rundir.digests import tree_digest
    from flaxformer_mt.rundir.checkpoint_choice import KeepPolicy

    assert jax.device_count() == 8

    def mesh(*shape):
        devices = np.asarray(jax.devices()[: int(np.prod(shape))]).reshape(shape)
        names = ("data", "fsdp", "tensor")
        return jax.sharding.Mesh(devices, names, axis_types=(AxisType.Auto,) * 3)

    def spec(leaf):
        axes = [("fsdp",), ("tensor",), ()]
        return P(*axes[: leaf.ndim]) if leaf.ndim > 1 else P()

    def place(tree, on):
        put = lambda leaf: jax.device_put(leaf, NamedSharding(on, spec(leaf)))
        return jax.tree.map(put, tree)

    def form(tree):
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree
        )

    wanted = snapshot(3)
    plain = tree_digest((wanted.params, wanted.opt_state))
    directory = Path(sys.argv[1])
    for number, shape in enumerate([(2, 2, 2), (1, 4, 1), (1, 1, 1)]):
        with jax.set_mesh(mesh(*shape)):
            params, opt_state = place((wanted.params, wanted.opt_state), mesh(*shape))
            assert tree_digest((params, opt_state)) == plain, shape
            with Checkpoints(directory, KeepPolicy()) as checkpoints:
                if number:
                    got = checkpoints.restore(form(params), form(opt_state))
                    for leaf in jax.tree.leaves(got.params):
                        assert leaf.sharding.mesh.devices.shape == shape
                    assert_same(dataclasses.replace(got, step=3), wanted)
                    params, opt_state = got.params, got.opt_state
                shot = dataclasses.replace(wanted, step=number, params=params, opt_state=opt_state)
                checkpoints.save(shot)
    # The last of them from eight devices, for the test to restore on its own one.
    with Checkpoints(directory, KeepPolicy()) as checkpoints:
        params, opt_state = place((wanted.params, wanted.opt_state), mesh(2, 2, 2))
        checkpoints.save(dataclasses.replace(wanted, step=9, params=params, opt_state=opt_state))
    print("done")
"""


@pytest.mark.extended
def test_across_meshes_of_eight_devices_to_one(run):
    environment = ENVIRONMENT | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(EIGHT)]
    done = subprocess.run(
        [*command, run.checkpoints],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "done\n", done.stderr
    wanted = snapshot(3)
    with Checkpoints(run.checkpoints, KeepPolicy()) as checkpoints:
        got = checkpoints.restore(*abstract(wanted), 9)
    assert_same(dataclasses.replace(got, step=3), wanted)
    alone = load_params(run, 9)
    for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(wanted.params), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        assert len(a.sharding.device_set) == 1
