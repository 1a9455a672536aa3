"""A checkpoint of any mesh is restored on any other, bit for bit and with the same digests."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap

import pytest

from flaxformer_mt.rundir.checkpoints import Checkpoints, load_params
from tests.rundir.snapshots import ENVIRONMENT, KEEP_ALL, abstract, assert_same, snapshot

# Eight devices are a matter of the whole process.
EIGHT = """
    import dataclasses, sys
    from pathlib import Path
    import jax, numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
    from tests.rundir.snapshots import KEEP_ALL, assert_same, snapshot
    from flaxformer_mt.rundir.checkpoints import Checkpoints
    from flaxformer_mt.rundir.digests import tree_digest

    def place(tree, shape):
        devices = np.asarray(jax.devices()[: int(np.prod(shape))]).reshape(shape)
        mesh = jax.sharding.Mesh(devices, ("data", "fsdp", "tensor"), (AxisType.Auto,) * 3)
        spec = lambda leaf: P("fsdp", "tensor") if leaf.ndim > 1 else P()
        put = lambda leaf: jax.device_put(leaf, NamedSharding(mesh, spec(leaf)))
        return jax.tree.map(put, tree)

    def form(tree):
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree
        )

    wanted = snapshot(3)
    plain = tree_digest((wanted.params, wanted.opt_state))
    for number, shape in enumerate([(2, 2, 2), (1, 4, 1), (1, 1, 1), (2, 2, 2)]):
        params, opt_state = place((wanted.params, wanted.opt_state), shape)
        assert tree_digest((params, opt_state)) == plain, shape
        with Checkpoints(Path(sys.argv[1]), KEEP_ALL) as checkpoints:
            if number:
                got = checkpoints.restore(form(params), form(opt_state))
                for leaf in jax.tree.leaves(got.params):
                    assert leaf.sharding.mesh.devices.shape == shape
                assert_same(dataclasses.replace(got, step=3), wanted)
                params, opt_state = got.params, got.opt_state
            shot = dataclasses.replace(wanted, step=number, params=params, opt_state=opt_state)
            checkpoints.save(shot)
    print("done")
"""


@pytest.mark.extended
def test_across_meshes_of_eight_devices_to_one(run):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(EIGHT), run.checkpoints],
        env=ENVIRONMENT | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "done\n", done.stderr
    wanted = dataclasses.replace(snapshot(3), step=3)
    with Checkpoints(run.checkpoints, KEEP_ALL) as checkpoints:
        got = checkpoints.restore(*abstract(wanted), 3)
    assert_same(got, wanted)
    assert_same(dataclasses.replace(got, params=load_params(run, 3)), wanted)
