#!/usr/bin/env bash
# JAX 0.10.2: in bfloat16, mode="high" of `gumbel` and `categorical`, meant for rare events, makes sampling
# wrong: about 1 in 20,000 draws is 87.5, beyond any logit (a true Gumbel variable exceeds 87 with a
# probability of 1e-38). Over 32,000 types there is nearly always one such draw, so `categorical` returns an
# arbitrary type: one with a probability of 0.9999 is drawn one time in seven. float32 is right in both modes.
# The documentation gives the range of mode="high" for float32 and doesn't exclude other dtypes.
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
logits = jnp.full(32_000, -20.0).at[7].set(0)
print(f"probability of type 7 among 32,000: {jax.nn.softmax(logits)[7]:.5f}")
keys = jax.random.split(jax.random.key(0), 200)
beyond, share = {}, {}
for dtype in (jnp.bfloat16, jnp.float32):
    for mode in ("low", "high"):
        noise = np.asarray(jax.random.gumbel(keys[0], (1_000_000,), dtype, mode=mode), np.float32)

        def draw(key):
            return jax.random.categorical(key, logits.astype(dtype), mode=mode)

        beyond[dtype, mode] = int((noise > 40).sum())
        share[dtype, mode] = float((jax.lax.map(draw, keys) == 7).mean())
        print(
            f"{jnp.dtype(dtype).name}, mode={mode!r}: largest of a million draws {noise.max():.1f},",
            f"{beyond[dtype, mode]} above 40; share of type 7 among 200 samples {share[dtype, mode]:.3f}",
        )

others = [key for key in share if key != (jnp.bfloat16, "high")]
same = beyond[jnp.bfloat16, "high"] > 10 and share[jnp.bfloat16, "high"] < 0.5
sys.exit(0 if same and all(beyond[key] == 0 and share[key] > 0.98 for key in others) else 1)
PYTHON
