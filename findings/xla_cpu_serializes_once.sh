#!/usr/bin/env bash
# JAX 0.10.2 and 0.12.0: on a CPU, a program that comes from the persistent compilation cache can be serialised with
# `jax.experimental.serialize_executable`, but what is written lacks the program's functions. It can be loaded again
# and fails when it is called: "NOT_FOUND: Function ... not found". One that was compiled here is written whole.
#
# So `flaxformer_mt/decoding/run/kept_programs.py` keeps only what it has compiled itself, with the cache turned off
# (`compiled_afresh` in `flaxformer_mt/parallel/compile_cache.py`).
# Exit status 0 while this lasts.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check jax==0.10.2

cat > "$folder/program.py" <<'PYTHON'
import importlib.metadata
import pickle
import sys

import jax
import jax.numpy as jnp
from jax.experimental.serialize_executable import deserialize_and_load, serialize

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def looped(x):
    return jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ y) + jnp.sort(y), x)


x = jnp.ones((64, 64))
content = pickle.dumps(serialize(jax.jit(looped).lower(x).compile()))
executable, *trees = pickle.loads(content)
try:
    deserialize_and_load(executable, *trees)(x).block_until_ready()
    outcome = "runs"
except jax.errors.JaxRuntimeError as error:
    outcome = "fails: " + str(error).splitlines()[0]
print(f"jaxlib {importlib.metadata.version('jaxlib')}, {len(content):,} bytes: {outcome}")
PYTHON

export JAX_PLATFORMS=cpu
compiled=$("$folder/venv/bin/python" "$folder/program.py" "$folder/cache")
from_the_cache=$("$folder/venv/bin/python" "$folder/program.py" "$folder/cache")
printf 'compiled here: %s\nfrom the cache: %s\n' "$compiled" "$from_the_cache"
[[ $compiled == *runs && $from_the_cache == *NOT_FOUND* ]]
