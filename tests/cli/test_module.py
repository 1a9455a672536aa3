"""`python -m flaxformer_mt` is the command."""

from __future__ import annotations

import subprocess
import sys

from flaxformer_mt import __version__


def test_the_package_is_a_program():
    command = [sys.executable, "-m", "flaxformer_mt", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"flaxformer-mt {__version__}\n"
