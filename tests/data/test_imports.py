"""Everything but the pipeline imports without JAX: a reader of files starts at once."""

from __future__ import annotations

import subprocess
import sys

MODULES = [
    "batch",
    "corpus",
    "encode",
    "filters",
    "inputs",
    "manifest",
    "plan",
    "position",
    "prepare",
    "store",
    "vocabulary",
]


def test_the_room_imports_without_jax() -> None:
    imports = "; ".join(f"import flaxformer_mt.data.{module}" for module in MODULES)
    code = f"import sys; {imports}; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
