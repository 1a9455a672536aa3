"""`launch/retry.sh`: what is tried again, what is not, and how it stops."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.launch.scripts import LAUNCH, run

# Ends with the first status of the file `ends`, which it removes from there.
SCRIPT = 'echo run >>runs; end=$(head -n 1 ends); sed -i 1d ends; exit "$end"'


def retry(folder: Path, ends: str, *options: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """The finished script and how often its command ran."""
    (folder / "ends").write_text("".join(f"{end}\n" for end in ends.split()))
    done = run("retry.sh", "--wait", "0", *options, "--", "bash", "-c", SCRIPT, cwd=folder)
    return done, len((folder / "runs").read_text().splitlines())


@pytest.mark.parametrize(
    ("ends", "status", "runs"),
    [
        ("0", 0, 1),
        ("75 75 0", 0, 3),  # stopped on request, and gone on
        ("1 134 137 0", 0, 4),  # failed, aborted by JAX, killed
        ("2 0", 2, 1),  # wrong usage stays wrong
        ("127 0", 127, 1),
        ("75 75 75 75 0", 75, 4),  # three retries are four runs
        ("1 1 1 9 0", 9, 4),
    ],
)
def test_runs_until_it_is_done_or_hopeless(tmp_path, ends, status, runs):
    done, counted = retry(tmp_path, ends, "--retries", "3")
    assert (done.returncode, counted) == (status, runs), done.stderr


def test_says_what_happened(tmp_path):
    done, _ = retry(tmp_path, "75 134 75", "--retries", "2")
    # How long an attempt lasted is the machine's to say.
    said = re.sub(r"after [0-9]+ s: (?=trying|giving)", "after ... s: ", done.stderr)
    assert said.splitlines() == [
        "retry.sh: attempt 1 of 3",
        "retry.sh: exit status 75, stopped and saved: going on in 0 s",
        "retry.sh: attempt 2 of 3",
        "retry.sh: exit status 134 after ... s: trying again in 0 s",
        "retry.sh: attempt 3 of 3",
        "retry.sh: exit status 75 after ... s: giving up after 3 attempt(s); "
        "the same command goes on from the last checkpoint",
    ]


def test_waits_twice_as_long_after_each_failure(tmp_path):
    began = time.monotonic()
    (tmp_path / "ends").write_text("1\n1\n0\n")
    done = run("retry.sh", "--wait", "1", "--max-wait", "2", "bash", "-c", SCRIPT, cwd=tmp_path)
    assert done.returncode == 0
    assert [line[-3:] for line in done.stderr.splitlines() if "trying" in line] == ["1 s", "2 s"]
    assert time.monotonic() - began >= 3


def test_stdin_and_stdout_belong_to_the_command():
    done = subprocess.run(
        [LAUNCH / "retry.sh", "cat"], input="ein Satz\n", capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "ein Satz\n"


def start(folder: Path, command: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [LAUNCH / "retry.sh", "--wait", "60", "bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        start_new_session=True,
    )
    deadline = time.monotonic() + 20
    while not (folder / "up").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
@pytest.mark.parametrize("to", ["script", "group"])
def test_request_to_stop_is_passed_on_once_and_ends_it(tmp_path, name, to):
    """Training saves at the first SIGTERM and dies of a second. A Ctrl-C goes to the group."""
    process = start(
        tmp_path,
        "trap 'echo >>got; trap - TERM; sleep 0.3; exit 75' TERM; touch up;"
        "while :; do sleep 0.05; done",
    )
    number = getattr(signal, name)
    if to == "group":
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 75, stderr
    assert (tmp_path / "got").read_text() == "\n"
    assert stderr.splitlines()[-1] == (
        f"retry.sh: asked to stop ({name}): the command ended with exit status 75"
    )


def test_request_to_stop_while_waiting(tmp_path):
    process = start(tmp_path, "touch up; exit 1")
    time.sleep(0.5)
    process.terminate()
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 75
    assert stderr.endswith("asked to stop (SIGTERM) while waiting\n")


def test_dry_run_runs_nothing(tmp_path):
    done = run("retry.sh", "--retries", "4", "--dry-run", "touch", "a b", "it's", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "# up to 5 times, until its exit status is 0 or 2; 10 s to 600 s between two",
        r"touch 'a b' 'it'\''s'",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "which command is to be kept going?"),
        (["--retries"], "--retries needs a whole number, not ''"),
        (["--retries", "-1", "true"], "--retries needs a whole number, not '-1'"),
        (["--retry", "1", "true"], "unknown option '--retry'"),
        (["--wait", "601", "true"], "--wait 601 is more than --max-wait 600"),
    ],
)
def test_bad_usage(arguments, message):
    done = run("retry.sh", *arguments)
    assert done.returncode == 2
    assert done.stderr == f"retry.sh: {message}\nretry.sh: see retry.sh --help\n"
