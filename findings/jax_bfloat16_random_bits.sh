#!/usr/bin/env bash
# JAX 0.10.2: random draws in bfloat16 start from a uniform number of 7 bits, so `normal` and `gumbel` have 128
# values (none above 2.6 or 4.9), where float32 draws rounded to bfloat16 have thousands. `categorical` draws
# noise in the logits' dtype and takes the lowest index among equals: of 1,000 equally likely types, more than
# half of all draws are among the first 100, and a tail with a probability of 0.25 gets 0.01.
# The documentation of `categorical` speaks of probabilities below 1e-7, for float32.
# mode="high", meant for rare events, is no way out: about 1 in 20,000 draws of bfloat16 noise is then 87.5,
# beyond any logit, so that among 32,000 types one with a probability of 0.9999 is drawn one time in seven.
#
# So `flaxformer_mt/decoding/search/sampling.py` draws the noise in float32.
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check jax==0.10.2

JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata
import sys

import jax
import jax.numpy as jnp
import numpy as np

versions = (f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib"))
print("Python", sys.version.split()[0], *versions)
key = jax.random.key(0)
distinct = {}
for name in ("normal", "gumbel"):
    draw = getattr(jax.random, name)
    drawn = {
        "bfloat16": draw(key, (1_000_000,), jnp.bfloat16),
        "float32, rounded": draw(key, (1_000_000,), jnp.float32).astype(jnp.bfloat16),
    }
    for dtype, values in drawn.items():
        values = np.asarray(values, np.float32)
        distinct[name, dtype] = len(np.unique(values))
        print(
            f"a million draws of {name}, {dtype}: {distinct[name, dtype]} distinct,",
            f"{values.min():.2f} to {values.max():.2f}, mean {values.mean():.4f}",
        )

equal = jnp.zeros(1000)
tail = jnp.full(1000, -8.0).at[0].set(0)
print(f"probability of all but the first type: {1 - jax.nn.softmax(tail)[0]:.3f}")
shares = {}
for dtype in (jnp.bfloat16, jnp.float32):
    first = jax.random.categorical(key, equal.astype(dtype), shape=(5000,)) < 100
    rest = jax.random.categorical(key, tail.astype(dtype), shape=(5000,)) > 0
    shares[dtype] = float(first.mean()), float(rest.mean())
    print(
        f"{jnp.dtype(dtype).name}: {shares[dtype][0]:.3f} of the draws from 1,000 equally likely types",
        f"are among the first 100; {shares[dtype][1]:.3f} of those with a tail are in it",
    )

logits = jnp.full(32_000, -20.0).at[7].set(0)
print(f"probability of type 7 among 32,000: {jax.nn.softmax(logits)[7]:.5f}")
keys = jax.random.split(key, 200)
drawn = {}
for dtype in (jnp.bfloat16, jnp.float32):

    def draw(key):
        return jax.random.categorical(key, logits.astype(dtype), mode="high")

    drawn[dtype] = float((jax.lax.map(draw, keys) == 7).mean())
    print(f"{jnp.dtype(dtype).name}, mode='high': type 7 is {drawn[dtype]:.3f} of 200 draws")

same = drawn[jnp.bfloat16] < 0.5 and drawn[jnp.float32] > 0.98
same = same and all(distinct[name, "bfloat16"] == 128 for name in ("normal", "gumbel"))
same = same and all(distinct[name, "float32, rounded"] > 1000 for name in ("normal", "gumbel"))
same = same and shares[jnp.bfloat16][0] > 0.5 and shares[jnp.bfloat16][1] < 0.02
sys.exit(0 if same and shares[jnp.float32][0] < 0.12 and shares[jnp.float32][1] > 0.2 else 1)
PYTHON
