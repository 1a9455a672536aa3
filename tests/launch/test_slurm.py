"""`launch/slurm.sbatch`, run under stand-ins for srun and scontrol."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.launch.scripts import LAUNCH, run

SRUN = """#!/bin/bash
echo "srun $*" >>"$CALLS"
trap 'exit 75' TERM
touch "$CALLS.up"
[ "$END" != wait ] || while :; do sleep 0.05; done
exit "$END"
"""


@pytest.fixture
def slurm(tmp_path) -> dict[str, str]:
    """Variables of a job, with the stand-ins first on PATH."""
    for name, text in (
        ("srun", SRUN),
        ("scontrol", '#!/bin/bash\necho "scontrol $*" >>"$CALLS"\n'),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    program = tmp_path / "venv" / "bin" / "flaxformer-mt"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    return {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "SLURM_JOB_ID": "77",
        "FLAXFORMER_VENV": str(tmp_path / "venv"),
        "FLAXFORMER_REQUEUE_WAIT": "0",
    }


def step(slurm: dict[str, str], words: str) -> str:
    program = f"{slurm['FLAXFORMER_VENV']}/bin/flaxformer-mt"
    return f"srun --kill-on-bad-exit=1 --label --unbuffered {program} {words}"


def calls(slurm: dict[str, str]) -> list[str]:
    return Path(slurm["CALLS"]).read_text().splitlines()


@pytest.mark.parametrize(
    ("end", "restarts", "requeued"),
    [("0", 0, False), ("2", 0, False), ("75", 0, True), ("134", 19, True), ("75", 20, False)],
)
def test_goes_back_into_the_queue_unless_done_or_hopeless(slurm, end, restarts, requeued):
    variables = {**slurm, "END": end, "SLURM_RESTART_COUNT": str(restarts)}
    done = run("slurm.sbatch", "train", "--workdir", "w", **variables)
    assert done.returncode == int(end)
    expected = [step(slurm, "train --workdir w")] + ["scontrol requeue 77"] * requeued
    assert calls(slurm) == expected


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGTERM"])
def test_a_warning_lets_the_tasks_save_and_requeues(slurm, name):
    """SIGUSR1 before the time limit, SIGTERM at a preemption."""
    process = subprocess.Popen(
        ["bash", LAUNCH / "slurm.sbatch", "train"],
        stderr=subprocess.PIPE,
        text=True,
        env={**slurm, "END": "wait"},
        start_new_session=True,
    )
    deadline = time.monotonic() + 20
    while not Path(slurm["CALLS"] + ".up").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(getattr(signal, name))
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 75, stderr
    assert calls(slurm) == [step(slurm, "train"), "scontrol requeue 77"]


def test_dry_run(slurm):
    done = run("slurm.sbatch", "--dry-run", "train", "--workdir", "a b", **slurm)
    assert done.stdout.splitlines() == [
        step(slurm, r"train --workdir a\ b"),
        "# after exit status 75, or when a node was lost, up to 20 times:",
        'scontrol requeue "$SLURM_JOB_ID"',
    ]
    assert not Path(slurm["CALLS"]).exists()


def test_dry_run_in_a_container(slurm):
    variables = {**slurm, "FLAXFORMER_IMAGE": "img:1", "FLAXFORMER_MOUNTS": "/s:/s"}
    done = run("slurm.sbatch", "--dry-run", "train", **variables)
    assert done.stdout.splitlines()[0] == (
        "srun --kill-on-bad-exit=1 --label --unbuffered --container-image=img:1 "
        "--container-mounts=/s:/s flaxformer-mt train"
    )


def test_missing_environment_and_command(slurm, tmp_path):
    done = run("slurm.sbatch", "train", **{**slurm, "FLAXFORMER_VENV": str(tmp_path / "none")})
    assert done.returncode == 1 and "is not there: FLAXFORMER_EXTRAS=cuda" in done.stderr
    done = run("slurm.sbatch", **slurm)
    assert done.returncode == 2 and "which command is to run?" in done.stderr


def test_directives_ask_for_requeue_and_a_signal():
    lines = (LAUNCH / "slurm.sbatch").read_text().splitlines()
    directives = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert {"--requeue", "--signal=B:USR1@180", "--open-mode=append"} <= set(directives)
    # sbatch reads directives up to the first command only.
    first_command = next(n for n, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(n < first_command for n, line in enumerate(lines) if line.startswith("#SBATCH"))
