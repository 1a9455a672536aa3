"""`launch/tpu_worker.sh`: a command that outlives its connection, in a home of the test's."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.launch.scripts import executable, run, start

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("flock", "setsid", "tail"))), reason="Linux tools are missing"
)

# Stands for launch/local.sh: `train` runs until the file `done` appears in the home directory, and
# saves when it is asked to stop.
LOCAL = r"""#!/bin/bash
echo "$FLAXFORMER_EXTRAS: $*" >>"$HOME/calls"
case $1 in
  --version) exit "${INSTALL_FAILS:-0}" ;;
  train)
    trap 'echo saved; exit 75' TERM
    echo "step 1"
    until [ -e "$HOME/done" ]; do sleep 0.05; done
    echo "finished" ;;
  fail) echo "why it failed" >&2; exit 3 ;;
esac
"""


class Worker:
    """A worker's home directory with the archive that tpu_vm.sh has copied."""

    def __init__(self, folder: Path):
        self.home = folder / "home"
        self.home.mkdir()
        checkout = folder / "checkout"
        (checkout / "launch").mkdir(parents=True)
        executable(checkout / "launch" / "local.sh", LOCAL)
        self._checkout = checkout
        self.pack()
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "python3.11").symlink_to(sys.executable)
        path = f"{bin_folder}:{os.environ['PATH']}"
        self.environment = {"HOME": str(self.home), "PATH": path, "FLAXFORMER_POLL": "0.1"}

    def pack(self) -> None:
        archive = self.home / "flaxformer_mt.tar.gz"
        subprocess.run(["tar", "-C", self._checkout, "-czf", archive, "launch"], check=True)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        return start("tpu_worker.sh", *arguments, **self.environment | variables)

    def run(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        done = run("tpu_worker.sh", *arguments, **self.environment | variables)
        return done.returncode, done.stdout, done.stderr

    def calls(self) -> list[str]:
        return (self.home / "calls").read_text().splitlines()

    def wait_for_log(self) -> None:
        log = self.home / ".flaxformer_job" / "log"
        eventually(lambda: log.exists() and "step 1" in log.read_text())


@pytest.fixture
def worker(tmp_path):
    worker = Worker(tmp_path)
    yield worker
    (worker.home / "done").touch()  # ends what a failed test has left running


def test_installs_runs_streams_and_reports(worker):
    (worker.home / "done").touch()
    # Files of an earlier version go, and the environment stays.
    checkout = worker.home / "flaxformer_mt"
    (checkout / ".venv").mkdir(parents=True)
    (checkout / "gone.py").touch()
    status, stdout, _ = worker.run("run", "--extras", "tpu,gcs", "--", "train", "a b")
    assert (status, stdout) == (0, "step 1\nfinished\n")
    assert worker.calls() == ["tpu,gcs: --version", "tpu,gcs: train a b"]
    assert (checkout / ".venv").exists() and not (checkout / "gone.py").exists()


@pytest.mark.extended
def test_status_and_stderr_of_the_command_and_of_a_failed_installation(worker):
    assert worker.run("run", "--", "fail")[:2] == (3, "why it failed\n")
    before = len(worker.calls())
    status, _, stderr = worker.run("run", "--", "train", INSTALL_FAILS="1")
    assert status == 1 and "the installation failed" in stderr
    assert worker.calls()[before:] == ["tpu,gcs: --version"]


@pytest.mark.extended
def test_lost_connection_leaves_the_command_running_and_the_next_call_follows_it(worker):
    first = worker.start("run", "--", "train")
    worker.wait_for_log()
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    second = worker.start("run", "--", "train")
    assert second.stderr is not None
    assert "still running: following its log" in second.stderr.readline()
    (worker.home / "done").touch()
    stdout, _ = second.communicate(timeout=60)
    assert second.returncode == 0
    assert stdout.endswith("finished\n")
    assert worker.calls() == ["tpu,gcs: --version", "tpu,gcs: train"]  # started once


CALL = ("run", "--extras", "tpu,gcs", "--", "train")
VALUES = {"TOKEN": "first-secret", "SAME": "1"}


@pytest.fixture
def training(worker):
    """A worker whose command is running."""
    first = worker.start(*CALL, **VALUES)
    worker.wait_for_log()
    yield worker
    (worker.home / "done").touch()
    first.communicate(timeout=60)


def differences(worker, *arguments, **variables) -> str:
    """The differences that a later call reports before it follows the log."""
    second = worker.start(*arguments, **variables)
    assert second.stderr is not None
    lines = []
    while not lines or "following its log" not in lines[-1]:
        lines.append(second.stderr.readline().partition(": ")[2])
        assert lines[-1], lines
    os.killpg(second.pid, signal.SIGKILL)
    second.communicate()
    return "".join(lines[:-1])


def test_the_same_call_is_told_nothing(training):
    assert differences(training, *CALL, **VALUES, LC_ALL="C", SSH_CONNECTION="2") == ""


def test_other_extras_and_variables_are_named_without_their_values(training):
    """Values may be secrets, which must not be logged."""
    call = ("run", "--extras", "tpu", "--", "train")
    report = differences(training, *call, **VALUES | {"TOKEN": "other-secret"})
    assert "has --extras tpu,gcs, and you ask for tpu\n" in report
    assert "other values of the environment (--env): TOKEN\n" in report
    assert "secret" not in report and "checkout" not in report
    assert "stop that command first (--stop)" in report
    environment = training.home / ".flaxformer_job" / "environment"
    assert oct(environment.stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize(("text", "differs"), [(LOCAL, False), (LOCAL + "# edited\n", True)])
def test_another_checkout_is_named_if_files_have_changed(training, tmp_path, text, differs):
    executable(tmp_path / "checkout" / "launch" / "local.sh", text)  # with a new time
    training.pack()
    report = differences(training, *CALL, **VALUES)
    assert ("has another checkout: files have changed since" in report) == differs


@pytest.mark.extended
def test_stop_lets_the_command_save(worker):
    first = worker.start("run", "--", "train")
    worker.wait_for_log()
    status, _, stderr = worker.run("stop")
    assert status == 0 and "stopped with exit status 75" in stderr
    stdout, _ = first.communicate(timeout=60)
    assert first.returncode == 76  # which tpu_vm.sh does not start again
    assert stdout.endswith("saved\n")
    assert "nothing is running" in worker.run("stop")[2]
