"""Everything but the pipeline imports without JAX: a reader of files starts at once."""

import pkgutil
import subprocess
import sys

import flaxformer_mt.data


def test_the_room_imports_without_jax_and_its_corpora_without_any_framework():
    """Sets of TFDS and paths on object stores load what they need, when they are read."""
    found = pkgutil.walk_packages(flaxformer_mt.data.__path__, "flaxformer_mt.data.")
    names = [module.name for module in found if module.name != "flaxformer_mt.data.pipeline"]
    code = f"""
import sys
import flaxformer_mt.data.corpus
heavy = ["array_record", "etils", "grain", "jax", "tensorflow", "tensorflow_datasets"]
print([name for name in heavy if name in sys.modules])
import {", ".join(names)}
print([name for name in ("jax", "tensorflow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n[]\n"
