"""Everything but the pipeline imports without JAX: a reader of files starts at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import flaxformer_mt.data

ROOM = Path(flaxformer_mt.data.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(ROOM.parent.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in ROOM.rglob("*.py")
    if path.name != "pipeline.py"
)


def test_the_room_imports_without_jax_and_its_corpora_without_any_framework() -> None:
    """Sets of TFDS and paths on object stores load what they need, when they are read."""
    assert "flaxformer_mt.data.planner" in MODULES
    code = f"""
import sys
import flaxformer_mt.data.corpus
heavy = ["array_record", "etils", "grain", "jax", "tensorflow", "tensorflow_datasets"]
print([name for name in heavy if name in sys.modules])
import {", ".join(MODULES)}
print([name for name in ("jax", "tensorflow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n[]\n"
