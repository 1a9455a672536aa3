"""`train` as a user runs it: what it writes, killed and stopped, and from another run's weights."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from flaxformer_mt.rundir.checkpoints import load_params
from flaxformer_mt.rundir.digests import tree_digest
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.rundir.metrics_log import read_metrics
from tests.cli.conftest import Run as InProcess, run
from tests.system.conftest import ROOT, Run, tiny

__all__ = ["run"]


def test_the_run_directory_holds_what_the_readme_says(trained: Path) -> None:
    expected = {"config.json", "vocabulary", "data", "checkpoints", "metrics.jsonl", "tensorboard"}
    assert expected | {"samples", "status.json"} <= {path.name for path in trained.iterdir()}
    kinds = [(line["kind"], line["step"]) for line in read_metrics(trained / "metrics.jsonl")]
    assert kinds == [
        ("train", 5),
        ("train", 10),
        ("valid", 10),
        ("train", 15),
        ("train", 20),
        ("valid", 20),
    ]
    assert "hypothesis" in (trained / "samples" / "step-20.txt").read_text()


def test_killed_and_stopped_runs_end_as_an_undisturbed_one(
    command: Run, corpus: Path, trained: Path, tmp_path: Path
) -> None:
    """SIGKILL at some step, then SIGTERM at another, then to the end: bit-equal parameters."""
    workdir = tmp_path / "run"
    arguments = [sys.executable, "-m", "flaxformer_mt.cli.main", "train", *tiny(corpus)]
    for number, step in ((signal.SIGKILL, 6), (signal.SIGTERM, 12)):
        process = subprocess.Popen(
            [*arguments, "--workdir", str(workdir)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not (workdir / "checkpoints" / str(step - step % 5)).exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
        if number == signal.SIGTERM:
            # It may have been past its last step when the signal came.
            assert process.returncode in (0, 75), errors
    done = command("train", *tiny(corpus), "--workdir", workdir)
    assert done.returncode == 0, done.stderr
    undisturbed, disturbed = (
        tree_digest(load_params(open_run(path), 20)) for path in (trained, workdir)
    )
    assert disturbed == undisturbed


def test_fine_tuning_takes_weights_and_vocabulary_along(
    run: InProcess, corpus: Path, trained: Path, tmp_path: Path
) -> None:
    fine = ("train", "--workdir", tmp_path / "fine", "--init-from", trained)
    arguments = [*fine, *tiny(corpus), "--config.training.freeze=encoder/*"]
    done = run(*arguments, "--config.training.steps=5")
    assert done.status == 0, done.errors
    before, after = (
        tree_digest(load_params(open_run(path), which))
        for path, which in ((trained, "best"), (tmp_path / "fine", 5))
    )
    assert before.keys() == after.keys()
    frozen = {name for name in before if name.startswith("encoder/")}
    assert frozen and all(before[name] == after[name] for name in frozen)
    assert any(before[name] != after[name] for name in before.keys() - frozen)

    done = run(*arguments, "--config.training.steps=6")
    assert done.status == 0, done.errors
    assert "is not used: this run goes on from its own checkpoint" in done.errors
    assert "resuming after step 5" in done.errors

    other = [*tiny(corpus), "--config.data.vocabulary.size=250", "--workdir", tmp_path / "other"]
    assert run("prepare", *other).status == 0
    done = run("train", *other, "--init-from", trained)
    assert done.status == 2 and "was trained with another vocabulary" in done.last
