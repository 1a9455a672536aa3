#!/usr/bin/env bash
# optax 0.2.8: Adam keeps its second moment in the parameters' dtype, also with mu_dtype=float32 (there is no
# nu_dtype). In bfloat16, nu * 0.999 rounds back to nu: the average grows but never falls, so one large gradient
# shrinks a parameter's updates for good. With b2 = 0.999, float32 forgets it within some 10,000 steps.
# The documentation describes mu_dtype only, and names no precision that nu needs.
#
# `flaxformer_mt` keeps parameters and moments in float32 also where `model.dtype` is bfloat16.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check jax==0.10.2 optax==0.2.8

JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import sys

import jax
import jax.numpy as jnp
import optax

versions = (f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib", "optax"))
print("Python", sys.version.split()[0], *versions)


def run(dtype, b2):
    """nu and the size of the update: after one gradient of 100, and after 20,000 more of 1."""
    adam = optax.scale_by_adam(b2=b2, mu_dtype=jnp.float32)

    def step(state, _):
        return adam.update(jnp.ones((1,), dtype), state)[::-1]

    state = adam.init(jnp.zeros((1,), dtype))
    _, state = adam.update(jnp.full((1,), 100, dtype), state)
    first = float(state.nu[0])
    state, updates = jax.lax.scan(step, state, length=20_000)
    return state.mu.dtype.name, state.nu.dtype.name, first, float(state.nu[0]), float(updates[-1, 0])


results = {}
for b2 in (0.98, 0.999):
    for dtype in (jnp.bfloat16, jnp.float32):
        mu_dtype, nu_dtype, first, last, update = results[b2, dtype] = run(dtype, b2)
        print(
            f"b2 = {b2}, parameters {jnp.dtype(dtype).name}, mu {mu_dtype}, nu {nu_dtype}:",
            f"nu {first:.3f}, then {last:.3f}; update {update:.3f}",
        )

stuck, moving = results[0.999, jnp.bfloat16], results[0.999, jnp.float32]
same = stuck[:2] == ("float32", "bfloat16") and stuck[3] == stuck[2] > 9
sys.exit(0 if same and stuck[4] < 0.4 and abs(moving[4] - 1) < 0.01 else 1)
PYTHON
