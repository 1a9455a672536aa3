"""What a contestant says of its own process, whatever has started it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A pass over no batches.
CONTESTANT = """
import json
from benchmarks.training_contestants.contest import timed

class Trainer:
    shapes = ()
    def loss(self): return 1.0
    def device_bytes(self): return None

print(json.dumps(timed(Trainer())))
"""
PARENT = """
import subprocess, sys
held = b"x" * int(sys.argv[1])
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[2]]).returncode)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell it")
def test_its_memory_is_not_that_of_the_process_that_has_started_it() -> None:
    held = 400 << 20
    done = subprocess.run(
        [sys.executable, "-c", PARENT, str(held), CONTESTANT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert 1 << 20 < json.loads(done.stdout)["peak_bytes"] < held / 2
