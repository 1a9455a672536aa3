#!/usr/bin/env bash
# Optax 0.2.8, two optimizers on an attention kernel that keeps its head axis, [d_model, heads, d_k]:
# - `adafactor` factors a second moment only if the two largest axes have at least 128 entries each
#   (`min_dim_size_to_factor`). The query kernel of the paper's base model, [512, 8, 64], therefore keeps a second moment
#   of full size, 262,144 numbers; the same matrix stored as [512, 512] keeps 1,024. Attention has 43% of the parameters
#   of that model's layers, and nothing says that they save no memory.
# - `contrib.muon` documents AdamW for what isn't a matrix, but passes on its own `nesterov=True`: embeddings and biases
#   get Nesterov's Adam. Their first step is 1.47 times the learning rate, AdamW's 1. And by default the three-axis kernel
#   isn't a matrix, so Muon never touches it.
#
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check jax==0.10.2 optax==0.2.8

JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import math
import sys
from importlib.metadata import version

import jax
import jax.numpy as jnp
import optax

print(*(f"{name} {version(name)}" for name in ("jax", "optax")), "Python", sys.version.split()[0])


def kept(shape):
    """The numbers of Adafactor's state for a kernel."""
    state = optax.adafactor(1e-3).init(jnp.zeros(shape))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state) if leaf.ndim)


by_heads, as_matrix = kept((512, 8, 64)), kept((512, 512))
print("Adafactor keeps", by_heads, "numbers for [512, 8, 64],", as_matrix, "for [512, 512]")

params = {"bias": jnp.zeros(3), "matrix": jnp.zeros((4, 4)), "query": jnp.zeros((4, 2, 2))}
gradient = jax.tree.map(jnp.ones_like, params)


def first_step(optimizer):
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    return {name: float(jnp.abs(leaf).max()) for name, leaf in updates.items()}


muon, adamw = first_step(optax.contrib.muon(1.0)), first_step(optax.adamw(1.0, b2=0.999, weight_decay=0.0))
nadamw = first_step(optax.nadamw(1.0, b2=0.999, weight_decay=0.0))
for name, steps in (("muon", muon), ("adamw", adamw), ("nadamw", nadamw)):
    print(f"first step of {name}:", {part: round(step, 4) for part, step in steps.items()})

lasts = by_heads > 262_144 and as_matrix < 1_100
for part in ("bias", "query"):
    lasts = lasts and abs(muon[part] - nadamw[part]) < 1e-4 and abs(muon[part] - adamw[part]) > 0.1
sys.exit(0 if lasts else 1)
PYTHON
