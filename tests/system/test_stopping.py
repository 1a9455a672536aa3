"""A stop that reaches every process of a training at once, as terminals and schedulers send it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flaxformer_mt.rundir.layout import open_run, read_status
from tests.system.conftest import ROOT, tiny

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")


def group(number: int) -> list[str]:
    """The command lines of a process group's living processes."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            state, _, pgrp = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(pgrp) == number and state != "Z":
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except (OSError, ValueError):
            continue
    return found


def start(corpus: Path, workdir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "flaxformer_mt.cli.main", "train", *tiny(corpus)),
            *("--config.training.steps=100000", "--config.data.workers=2"),
            *("--workdir", str(workdir)),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        (signal.SIGTERM, "training"),
        pytest.param(signal.SIGTERM, "workers start", marks=pytest.mark.extended),
        pytest.param(signal.SIGINT, "workers start", marks=pytest.mark.extended),
    ],
)
def test_a_whole_group_told_to_stop_saves_and_leaves_nothing_behind(
    corpus: Path, tmp_path: Path, kind: signal.Signals, moment: str
) -> None:
    run = tmp_path / "run"
    training = start(corpus, run)
    try:
        if moment == "training":
            while not (run / "checkpoints" / "5").exists():
                assert training.poll() is None, training.stderr and training.stderr.read()
                time.sleep(0.05)
        else:
            while not any("multiprocessing.spawn" in line for line in group(training.pid)):
                assert training.poll() is None, training.stderr and training.stderr.read()
                time.sleep(0.01)
        os.killpg(training.pid, kind)
        _, errors = training.communicate(timeout=300)
        assert training.returncode == 75, errors
        assert f"{kind.name} received" in errors and "the same command goes on" in errors
        assert "Traceback" not in errors
        status = read_status(open_run(run))
        assert status is not None and status.state == "stopped"
        assert (run / "checkpoints" / str(status.step)).exists()
        while group(training.pid):
            time.sleep(0.1)
    finally:
        if training.poll() is None or group(training.pid):
            os.killpg(training.pid, signal.SIGKILL)
