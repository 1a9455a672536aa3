"""What a contestant says of its own process, whatever has started it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.training_contestants.contest import WARM, warmed

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


@pytest.mark.extended
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


@pytest.mark.parametrize(("shapes", "firsts"), [("aaa", [0]), ("abca", [2, 1, 0])])
def test_before_it_is_timed_it_does_each_shape_and_ten_steps_more(shapes, firsts) -> None:
    done: list[int] = []

    class Counting:
        def __init__(self) -> None:
            self.shapes = [(ord(shape),) for shape in shapes]

        def step(self, number: int) -> None:
            done.append(number)

        def loss(self) -> float:
            return 1.0

    assert warmed(Counting())["shapes"] == len(firsts)
    once, rest = done[: len(firsts)], done[len(firsts) :]
    assert sorted(once) == sorted(firsts)
    assert len(rest) == WARM >= 10 and set(rest) == set(range(len(shapes)))
