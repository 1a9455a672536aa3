"""A disk that is full for a while costs checkpoints, and one that stays full the last ones alone.

A limit on the size of files, set from outside, fails as a full disk does: in mid-file.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flaxformer_mt.rundir.checkpoints import list_steps
from flaxformer_mt.rundir.metrics_log import read_metrics
from tests.system.conftest import ROOT, WARNINGS, tiny

STEPS = 2000
SETTINGS = {
    "training.steps": STEPS,
    "training.validate_every": 200,
    "decoding.max_extra_tokens": 5,
    "training.save_every": 50,
    "training.log_every": 20,
    "data.batch.max_shapes": 1,
}


class Training:
    """`train` in a process of its own, whose words are read while it runs."""

    def __init__(self, corpus: Path, workdir: Path, **changes: int) -> None:
        settings = SETTINGS | {f"training.{key}": value for key, value in changes.items()}
        arguments = [*tiny(corpus), *(f"--config.{k}={v}" for k, v in settings.items())]
        command = [sys.executable, *WARNINGS, "-m", "flaxformer_mt.cli.main", "train"]
        self.workdir = workdir
        # Through a pipe: the limit would hold for a file, too.
        self.process = subprocess.Popen(
            [*command, *arguments, "--workdir", str(workdir)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(line.rstrip("\n") for line in iter(self.process.stderr.readline, ""))

    def limit(self, size: int) -> None:
        """Files of this process can be no larger than `size` bytes."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def wait_for(self, text: str, times: int = 1) -> None:
        while sum(text in line for line in list(self.said)) < times:
            assert self.process.poll() is None, self.said
            time.sleep(0.01)

    def wait_for_checkpoint(self) -> None:
        while not list_steps(self.workdir / "checkpoints"):
            assert self.process.poll() is None, self.said
            time.sleep(0.01)

    def end(self) -> int:
        """The exit status, with everything read."""
        try:
            return self.process.wait(timeout=500)
        finally:
            self.process.kill()
            self.reader.join()
            assert self.process.stderr is not None
            self.process.stderr.close()


@pytest.mark.extended
def test_training_goes_on_and_saves_when_there_is_room(corpus: Path, tmp_path: Path) -> None:
    training = Training(corpus, tmp_path / "run")
    try:
        training.wait_for_checkpoint()
        training.limit(500)
        training.wait_for("could not be saved", times=2)
        training.wait_for("training goes on, and reports are written when they can be")
        training.limit(resource.RLIM_INFINITY)
    finally:
        status = training.end()
    assert status == 0, training.said
    reported = [line["step"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    assert sorted(set(reported)) == list(range(20, STEPS + 1, 20))
    assert STEPS in list_steps(tmp_path / "run" / "checkpoints")


@pytest.mark.extended
def test_a_run_whose_end_cannot_be_kept_has_failed(corpus: Path, tmp_path: Path) -> None:
    training = Training(corpus, tmp_path / "run", steps=400)
    try:
        training.wait_for_checkpoint()
        training.limit(500)
    finally:
        status = training.end()
    assert status == 1, training.said
    assert any("train: error:" in line and "could not be saved" in line for line in training.said)
    assert not any("Traceback" in line for line in training.said), "\n".join(training.said)
    kept = list_steps(tmp_path / "run" / "checkpoints")
    assert kept and 400 not in kept
    # The same command goes on from there when there is room again.
    again = Training(corpus, tmp_path / "run", steps=400)
    assert again.end() == 0, again.said
    assert f"resuming after step {max(kept)}" in again.said
    ended = json.loads((tmp_path / "run" / "status.json").read_text())
    assert ended["state"] == "finished" and ended["step"] == 400
