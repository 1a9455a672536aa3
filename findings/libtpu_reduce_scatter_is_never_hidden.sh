#!/usr/bin/env bash
# Of a data-parallel step's gradients, summed over 8 chips of a v5e, libtpu 0.0.42.1 hides an
# all-reduce behind products, in pieces ("async collective fusion"), but not a reduce-scatter, which
# sends half as much: with the option that is named for it the schedule is the same, and every
# reduce-scatter waits. All-reduces are hidden only with two options together, and only if the
# compiler may not combine them: by default one sum of everything waits at the end.
#
# So `flaxformer_mt/training/program.py` asks a v5e for whole sums of gradients.
# No TPU is needed: the compiler, for x86 Linux, works from a topology's name.
# Exit status 0 while this lasts. PYTHON: Python 3.11 or later.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jax==0.10.2 jaxlib==0.10.2 libtpu==0.0.42.1 numpy==2.4.6

export JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 ALLOW_MULTIPLE_LIBTPU_LOAD=1 TPU_WORKER_HOSTNAMES=localhost
"$folder/venv/bin/python" - 2>"$folder/log" <<'PYTHON' || { cat "$folder/log" >&2; exit 1; }
import importlib.metadata
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

for package in ("jax", "jaxlib", "libtpu"):
    print(package, importlib.metadata.version(package))

chips = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices
mesh = Mesh(np.array(chips), ("data",))
HIDE = {
    "xla_tpu_enable_async_collective_fusion": True,
    "xla_tpu_enable_async_collective_fusion_fuse_reduce_scatter": True,
    "xla_tpu_enable_async_collective_fusion_fuse_all_reduce": True,
    "xla_enable_async_all_reduce": True,
    "xla_enable_async_reduce_scatter_fusion": True,
    "xla_jf_crs_combiner_threshold_count": 1,
}


def abstract(shape, spec):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec))


def compiled(function, arguments, specs, out, options):
    mapped = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)
    return jax.jit(mapped, compiler_options=options).lower(*arguments).compile().as_text()


def loss(layers, x):
    for up, down in layers:
        x = x + jax.nn.relu(x @ up) @ down
    return (x.astype(jnp.float32) ** 2).mean()


def scattered(gradient):
    return jax.lax.psum_scatter(gradient, "data", scatter_dimension=0, tiled=True)


def schedule(sum_over_chips, options, out):
    """(hidden, waiting): collectives of the compiled schedule."""
    layers = [(abstract((512, 2048), PartitionSpec()), abstract((2048, 512), PartitionSpec()))] * 6
    x = abstract((128, 256, 512), PartitionSpec("data"))
    gradients = lambda layers, x: jax.tree.map(sum_over_chips, jax.grad(loss)(layers, x))
    specs = (PartitionSpec(), PartitionSpec("data"))
    text = compiled(gradients, (layers, x), specs, out, options)
    entry = text[text.index("\nENTRY ") :]
    hidden = set(re.findall(r'chain_id="(\d+)"', text))
    return len(hidden), len(re.findall(r" (?:all-reduce|reduce-scatter)\(", entry))


def without(option):
    return {name: value for name, value in HIDE.items() if name != option}


whole = lambda gradient: jax.lax.psum(gradient, "data")
cases = {
    "all-reduce, default": (whole, {}, PartitionSpec()),
    "all-reduce, options": (whole, HIDE, PartitionSpec()),
    "all-reduce, without one of them": (
        whole,
        without("xla_enable_async_all_reduce"),
        PartitionSpec(),
    ),
    "all-reduce, without the other": (
        whole,
        without("xla_tpu_enable_async_collective_fusion_fuse_all_reduce"),
        PartitionSpec(),
    ),
    "reduce-scatter, default": (scattered, {}, PartitionSpec("data")),
    "reduce-scatter, options": (scattered, HIDE, PartitionSpec("data")),
}
found = {name: schedule(*case) for name, case in cases.items()}
for name, (hidden, waiting) in found.items():
    print(f"{name}: {hidden} hidden behind products, {waiting} waiting")

expected = {
    "all-reduce, default": (0, 1),
    "all-reduce, options": (11, 1),
    "all-reduce, without one of them": (0, 12),
    "all-reduce, without the other": (0, 12),
    "reduce-scatter, default": (0, 12),
    "reduce-scatter, options": (0, 12),
}
sys.exit(found != expected)
PYTHON
