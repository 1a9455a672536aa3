#!/usr/bin/env bash
# JAX 0.12.0.1, XLA for NVIDIA GPUs: a float32 weight that a loop's body rounds to bfloat16 for a product is
# rounded anew in every pass, although it never changes: each pass reads four bytes of it, writes two and reads
# these again. XLA for CPUs moves the same cast out of the loop. Cast before `lax.while_loop`, the GPU's loop
# reads two bytes.
# No GPU is needed: XLA compiles for a described one.
#
# So `flaxformer_mt/model/parameters.py` (`variables_for_steps`) rounds a search's kernels before its loop: planned
# for an H100, a step of the paper's base with 32 sentences moves 625 MB instead of 871.
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
DEVICES = {"GPU": topology.devices[0], "CPU": jax.devices("cpu")[0]}


def repeated(cast_first):
    """x, multiplied by w so many times."""

    def function(x, w, times):
        w = w.astype(jnp.bfloat16) if cast_first else w

        def body(state):
            number, x = state
            rounded = x.astype(jnp.bfloat16), w.astype(jnp.bfloat16)
            return number + 1, jnp.einsum("lk,kn->ln", *rounded, preferred_element_type=jnp.float32)

        return jax.lax.while_loop(lambda state: state[0] < times, body, (0, x))[1]

    return function


def reads_float32(device, cast_first):
    """Whether the compiled loop's body has the weight in float32."""
    sharding = jax.sharding.SingleDeviceSharding(device)
    arrays = [
        jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
        for shape, dtype in (((128, 512), "float32"), ((512, 512), "float32"), ((), "int32"))
    ]
    program = jax.jit(repeated(cast_first)).lower(*arrays).compile().as_text()
    name = re.search(r" while\(.*body=%([\w.-]+)", program).group(1)
    start = program.index(f"\n%{name} (")
    return "f32[512,512]" in program[start : program.index("\n}", start)]


seen = {}
for name, device in DEVICES.items():
    for cast_first in (False, True):
        where = "before the loop" if cast_first else "in its body"
        seen[name, cast_first] = reads_float32(device, cast_first)
        read = "float32" if seen[name, cast_first] else "bfloat16"
        print(f"{name}, cast {where}: a pass reads the weight in {read}")

expected = {("GPU", False): True, ("GPU", True): False, ("CPU", False): False, ("CPU", True): False}
sys.exit(0 if seen == expected else 1)
PYTHON
