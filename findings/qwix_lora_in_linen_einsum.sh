#!/usr/bin/env bash
# qwix 0.1.8 with Flax 0.12.8: `LoraProvider` gives adapters to Linen's Dense, and to all four projections of
# MultiHeadDotProductAttention (which reach `dot_general`), but a Linen module whose product is `jnp.einsum` can't even
# be initialised, Flax's own `nn.Einsum` included: the provider sets an attribute on the module "for debugging"
# (`NAME_lora_einsum_str`, providers/lora.py), and a Linen module is frozen outside `setup`:
# SetAttributeFrozenModuleError. NNX modules aren't frozen, so there the same einsum gets its adapters. So a Linen model
# that keeps the head axis of its kernels, as TPU code does for sharding, can't use qwix for low-rank adapters.
#
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check jax==0.10.2 flax==0.12.8 qwix==0.1.8

JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import sys
from importlib.metadata import version

import flax.linen as nn
import jax
import jax.numpy as jnp
import qwix
from flax import nnx

print(*(f"{name} {version(name)}" for name in ("jax", "flax", "qwix")), "Python", sys.version.split()[0])
x = jnp.ones((2, 4))


def provider():
    return qwix.LoraProvider(module_path=".*", rank=2, alpha=2.0)


def adapters(module):
    """The names of a Linen module's adapters, or the error of its initialisation."""
    try:
        variables = qwix.apply_lora_to_model(module, provider()).init(jax.random.key(0), x)
    except Exception as error:
        return type(error).__name__
    paths = (jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(variables))
    return [path for path in paths if "lora" in path]


dense = adapters(nn.Dense(3))
attention = adapters(nn.MultiHeadDotProductAttention(2))
einsum = adapters(nn.Einsum((4, 3), "bd,de->be"))
model = qwix.apply_lora_to_model(nnx.Einsum("bd,de->be", (4, 3), (3,), rngs=nnx.Rngs(0)), provider(), x, rngs=nnx.Rngs(1))
of_nnx = [name for name in vars(model) if "lora_" in name]
print("Linen Dense:", dense)
print("Linen MultiHeadDotProductAttention:", len(attention), "arrays")
print("Linen Einsum:", einsum)
print("NNX Einsum:", of_nnx)

lasts = len(dense) == 2 and len(attention) == 8 and einsum == "SetAttributeFrozenModuleError"
sys.exit(0 if lasts and {"kernel_lora_a", "kernel_lora_b"} <= {*of_nnx} else 1)
PYTHON
