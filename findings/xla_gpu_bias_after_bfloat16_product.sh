#!/usr/bin/env bash
# JAX 0.12.0.1, XLA for NVIDIA GPUs: to ask for a product's result in bfloat16 can cost memory traffic. With
# `preferred_element_type=float32`, a bias, max(0, .) and the rounding to bfloat16 are fused into the product's
# kernel, and one array is written. With bfloat16 the product is written, and a second kernel reads it, adds
# the bias and writes it again: widening bfloat16 for the sum doubles the bytes of what would be fused, and XLA
# fuses nothing into a product's output that grows.
# No GPU is needed: XLA compiles for a described one.
#
# So `flaxformer_mt/model/kernels.py` keeps products in float32 until the bias is added.
# Exit status 0 while this lasts. PYTHON: Python 3.12 or later.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3.12}" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check 'jax[cuda13]==0.12.0.1'

JAX_PLATFORMS=cpu JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1 CUDA_VISIBLE_DEVICES='' \
    "$folder/venv/bin/python" - 2>"$folder/log" <<'PYTHON' || { cat "$folder/log" >&2; exit 1; }
import importlib.metadata
import re
import sys

import jax
import jax.numpy as jnp
from jax.experimental import topologies

H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128 registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84942979072 cuda_compute_capability { major: 9 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 12 }
runtime_version { major: 13 minor: 0 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
versions = (f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jax-cuda13-plugin"))
print("Python", sys.version.split()[0], *versions)
topology = topologies.get_topology_desc(platform="cuda", target_config=H100, topology="1x1x1")
on_gpu = jax.sharding.SingleDeviceSharding(topology.devices[0])


def array(*shape, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=on_gpu)


def kernels(function, *arguments):
    """What each kernel of the program writes."""
    # Otherwise XLA may leave out the rounding between the two, and make one product of both forms.
    options = {"xla_allow_excess_precision": False}
    program = jax.jit(function, compiler_options=options).lower(*arguments).compile().as_text()
    entry = program[program.index("\nENTRY ") :]
    lines = re.findall(r" = (.*?) (?:fusion|custom-call|copy|dot)\(", entry)
    return [re.sub(r"\{[^}]*\}", "", line) for line in lines]


def layer(result):
    """max(0, x w + b) in bfloat16, whose product XLA is asked for in this type."""

    def function(x, w, b):
        product = jnp.einsum("lk,kn->ln", x, w, preferred_element_type=result)
        return jnp.maximum(product + b, 0).astype(jnp.bfloat16)

    return function


arguments = array(8192, 512), array(512, 2048), array(2048, dtype=jnp.float32)
fused = kernels(layer(jnp.float32), *arguments)
apart = kernels(layer(jnp.bfloat16), *arguments)
print("a bias and max(0, .) after a product, kernels write:")
print("  product in float32: ", fused)
print("  product in bfloat16:", apart)

same = fused == ["bf16[8192,2048]"] and apart == ["bf16[8192,2048]"] * 2
sys.exit(0 if same else 1)
PYTHON
