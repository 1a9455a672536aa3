"""`launch/slurm.sbatch`, run under stand-ins for srun and scontrol."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.launch.scripts import LAUNCH, executable, run, start

# Says in which state a job is, if $STATE is any, and notes all else.
SCONTROL = """#!/bin/bash
[ "$1" = show ] || exec echo "scontrol $*" >>"$CALLS"
[ -n "$STATE" ] || exit 1
printf 'JobId=%s JobName=mt\\n   JobState=%s Reason=None Dependency=(null)\\n' "$3" "$STATE"
"""

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
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        executable(tmp_path / name, text)
    program = tmp_path / "venv" / "bin" / "flaxformer-mt"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    return {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "STATE": "RUNNING",
        "SLURM_JOB_ID": "77",
        "SLURM_CPUS_PER_TASK": "8",
        "FLAXFORMER_VENV": str(tmp_path / "venv"),
        "FLAXFORMER_REQUEUE_WAIT": "0",
    }


def step(slurm: dict[str, str], words: str) -> str:
    program = f"{slurm['FLAXFORMER_VENV']}/bin/flaxformer-mt"
    return f"srun --kill-on-bad-exit=1 --label --unbuffered --cpus-per-task=8 {program} {words}"


def calls(slurm: dict[str, str]) -> list[str]:
    return Path(slurm["CALLS"]).read_text().splitlines()


@pytest.mark.parametrize(
    ("end", "restarts", "state", "requeued"),
    [
        ("0", 0, "RUNNING", False),
        ("2", 0, "RUNNING", False),
        ("75", 0, "RUNNING", False),  # the tasks alone were asked to stop, not by this script
        ("1", 0, "RUNNING", True),
        ("134", 19, "RUNNING", True),
        ("134", 20, "RUNNING", False),
        # What scancel has killed looks like a crash. Where Slurm does not answer, it is one.
        *(("143", 0, state, False) for state in ("CANCELLED", "TIMEOUT")),
        ("143", 0, "", True),
    ],
)
def test_goes_back_into_the_queue_unless_done_or_hopeless(slurm, end, restarts, state, requeued):
    variables = {**slurm, "END": end, "SLURM_RESTART_COUNT": str(restarts), "STATE": state}
    done = run("slurm.sbatch", "train", "--workdir", "w", **variables)
    assert done.returncode == int(end)
    expected = [step(slurm, "train --workdir w")] + ["scontrol requeue 77"] * requeued
    assert calls(slurm) == expected
    ending = state not in ("", "RUNNING")
    assert (f"the job is {state}: not put back" in done.stderr) == ending


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "state", "requeued"),
    [
        ("SIGUSR1", "RUNNING", True),  # before the time limit, or where a preemption is announced
        ("SIGUSR1", "CANCELLED", False),  # ... and then scancel
        ("SIGTERM", "RUNNING", False),
    ],
)
def test_a_request_to_stop_lets_the_tasks_save(slurm, name, state, requeued):
    process = start("slurm.sbatch", "train", **slurm | {"END": "wait", "STATE": state})
    eventually(Path(slurm["CALLS"] + ".up").exists)
    process.send_signal(getattr(signal, name))
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75, stderr
    assert calls(slurm) == [step(slurm, "train")] + ["scontrol requeue 77"] * requeued


def test_the_copy_that_sbatch_makes_finds_the_checkout(slurm, tmp_path):
    spooled = tmp_path / "slurm_script"
    shutil.copy(LAUNCH / "slurm.sbatch", spooled)
    for submitted_in, status in ((LAUNCH.parent, 0), (tmp_path, 2)):
        world = {**slurm, "END": "0", "SLURM_SUBMIT_DIR": str(submitted_in)}
        done = run(str(spooled), "train", **world)
        assert done.returncode == status, done.stderr
    assert f"{tmp_path} is no checkout: submit from one" in done.stderr


def test_dry_run_and_directives_that_ask_for_requeue_and_a_signal(slurm):
    done = run("slurm.sbatch", "--dry-run", "train", "--workdir", "a b", **slurm)
    assert done.stdout.splitlines() == [
        step(slurm, r"train --workdir a\ b"),
        "# after SIGUSR1, a crash or a lost node, up to 20 times:",
        'scontrol requeue "$SLURM_JOB_ID"',
    ]
    assert not Path(slurm["CALLS"]).exists()
    variables = {**slurm, "FLAXFORMER_IMAGE": "img:1", "FLAXFORMER_MOUNTS": "/s:/s"}
    done = run("slurm.sbatch", "--dry-run", "train", **variables)
    assert done.stdout.splitlines()[0] == (
        "srun --kill-on-bad-exit=1 --label --unbuffered --cpus-per-task=8 "
        "--container-image=img:1 --container-mounts=/s:/s flaxformer-mt train"
    )

    # sbatch reads directives up to the first command only.
    head, _, _ = (LAUNCH / "slurm.sbatch").read_text().partition("\nset ")
    directives = re.findall("^#SBATCH (.*)", head, re.MULTILINE)
    assert {"--requeue", "--signal=B:USR1@180", "--open-mode=append"} <= set(directives)
