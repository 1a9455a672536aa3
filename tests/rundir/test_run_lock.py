"""One that writes at a time, and how a run stands."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys

import pytest

from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory, Status, read_status, write_status
from flaxformer_mt.rundir.lock import locked
from tests.rundir.snapshots import ENVIRONMENT

TRAINING = "training on it"
HOLD = """
import sys
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.lock import locked
with locked(RunDirectory(sys.argv[1]), "preparing its data"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_who_holds(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(
                RunDirectoryError,
                match=rf"process {holder.pid} on .* is preparing its data; wait for it, stop it",
            ),
            locked(RunDirectory(tmp_path), TRAINING),
        ):
            pass
        holder.send_signal(signal.SIGKILL)
    # What it leaves is harmless, and longer texts as well.
    stale = {"pid": 1, "host": "elsewhere", "more": "and longer text" * 20}
    (tmp_path / "lock").write_text(json.dumps(stale))
    with locked(RunDirectory(tmp_path), TRAINING):
        held = json.loads((tmp_path / "lock").read_text())
    assert held["pid"] == os.getpid()


def test_a_second_holder_in_the_same_process_is_refused(tmp_path):
    run = RunDirectory(tmp_path)
    with pytest.raises(KeyError), locked(run, TRAINING):
        for _ in range(2):
            with pytest.raises(RunDirectoryError, match="is training on"), locked(run, TRAINING):
                pass
        raise KeyError
    with locked(run, TRAINING):
        pass


@pytest.mark.parametrize(
    ("content", "holder"),
    [
        ('{"pid": 7, "host": "there"}', "process 7 on there is working on it"),
        ("", "another process is working on it"),
        ("[]", "another process is working on it"),
    ],
)
def test_a_holder_that_does_not_say_what_it_does(tmp_path, content, holder):
    """An earlier version's, or one that has not written yet."""
    run = RunDirectory(tmp_path)
    with locked(run, TRAINING):
        run.lock_file.write_text(content)
        with pytest.raises(RunDirectoryError, match=holder), locked(run, TRAINING):
            pass


def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.warns(UserWarning, match="has no locks"), locked(RunDirectory(tmp_path), TRAINING):
        pass


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(RunDirectoryError, match="cannot be opened"):
        with locked(RunDirectory(tmp_path / "absent"), TRAINING):
            pass


def test_status_is_read_back(tmp_path):
    run = RunDirectory(tmp_path)
    assert read_status(run) is None
    for status in (
        Status(state="running", step=0),
        Status(state="failed", step=7, reason="loss was not finite"),
    ):
        write_status(run, status)
        assert read_status(run) == status
    assert os.listdir(tmp_path) == ["status.json"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "is not a status.*delete it"),
        ("[]", "is not a status"),
        ('{"state": "asleep", "step": 1, "reason": ""}', "unknown state 'asleep'"),
        ('{"state"', r"status\.json:1: is not JSON"),
    ],
)
def test_a_bad_status_is_an_error(tmp_path, content, message):
    (tmp_path / "status.json").write_text(content)
    with pytest.raises(RunDirectoryError, match=message):
        read_status(RunDirectory(tmp_path))
