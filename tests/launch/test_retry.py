"""`launch/retry.sh`: what is tried again, what is not, and how it stops."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.launch.scripts import executable, run, start

# Ends with the first status of the file `ends`, which it removes from there.
SCRIPT = 'echo run >>runs; end=$(head -n 1 ends); sed -i 1d ends; exit "$end"'


def retry(folder: Path, ends: str, *options: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """The finished script, which has not slept, and how often its command ran."""
    (folder / "ends").write_text("".join(f"{end}\n" for end in ends.split()))
    executable(folder / "sleep", "#!/bin/sh\n")
    path = f"{folder}:{os.environ['PATH']}"
    done = run("retry.sh", *options, "--", "bash", "-c", SCRIPT, cwd=folder, PATH=path)
    return done, len((folder / "runs").read_text().splitlines())


@pytest.mark.parametrize(
    ("ends", "status", "runs"),
    [
        ("0", 0, 1),
        ("75 75 0", 0, 3),  # stopped on request, and gone on
        ("1 134 137 0", 0, 4),  # failed, aborted by JAX, killed
        ("2 0", 2, 1),  # wrong usage stays wrong
        ("127 0", 127, 1),
        ("1 1 1 9 0", 9, 4),  # three retries are four runs
    ],
)
def test_runs_until_it_is_done_or_hopeless(tmp_path, ends, status, runs):
    done, counted = retry(tmp_path, ends, "--retries", "3")
    assert (done.returncode, counted) == (status, runs), done.stderr


def test_says_what_happened_and_waits_twice_as_long_after_each_failure(tmp_path):
    done, _ = retry(tmp_path, "134 1 134 75 1 75", "--retries", "5", "--max-wait", "30")
    # How long an attempt lasted is the machine's to say.
    said = re.sub(r"after [0-9]+ s: (?=trying|giving)", "after ... s: ", done.stderr).splitlines()
    assert said[::2] == [f"retry.sh: attempt {number} of 6" for number in range(1, 7)]
    assert said[1::2] == [
        "retry.sh: exit status 134 after ... s: trying again in 10 s",
        "retry.sh: exit status 1 after ... s: trying again in 20 s",
        "retry.sh: exit status 134 after ... s: trying again in 30 s",
        "retry.sh: exit status 75, stopped and saved: resuming in 10 s",
        "retry.sh: exit status 1 after ... s: trying again in 10 s",
        "retry.sh: exit status 75 after ... s: giving up after 6 attempt(s); the same command "
        "resumes from the last checkpoint",
    ]
    # Standard input and output belong to the command.
    assert run("retry.sh", "cat", stdin="ein Satz\n").stdout == "ein Satz\n"


@pytest.mark.extended
@pytest.mark.parametrize(
    ("name", "send"),
    [
        *((name, os.kill) for name in ("SIGTERM", "SIGHUP", "SIGUSR1")),
        ("SIGINT", os.killpg),  # a Ctrl-C goes to the group
    ],
)
def test_request_to_stop_is_passed_on_once_and_ends_it(tmp_path, name, send):
    """Training saves at the first SIGTERM and dies of a second."""
    saves = "trap 'echo >>got; trap - TERM; sleep 0.3; exit 75' TERM; touch up;"
    saves += "while :; do sleep 0.05; done"
    process = start("retry.sh", "--wait", "60", "bash", "-c", saves, cwd=tmp_path)
    eventually((tmp_path / "up").exists)
    send(process.pid, getattr(signal, name))
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75, stderr
    assert (tmp_path / "got").read_text() == "\n"
    assert f"asked to stop ({name}): the command ended with exit status 75" in stderr


def test_request_to_stop_while_waiting(tmp_path):
    executable(tmp_path / "sleep", '#!/bin/bash\ntouch up; PATH=${PATH#*:}; exec sleep "$@"\n')
    path = f"{tmp_path}:{os.environ['PATH']}"
    process = start("retry.sh", "--wait", "60", "false", cwd=tmp_path, PATH=path)
    eventually((tmp_path / "up").exists)
    process.terminate()
    _, stderr = process.communicate(timeout=50)
    assert process.returncode == 75
    assert stderr.endswith("asked to stop (SIGTERM) while waiting\n")
