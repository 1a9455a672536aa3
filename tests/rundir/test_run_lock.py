"""One writer at a time for each run directory on this machine."""

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
from flaxformer_mt.rundir.layout import RunDirectory
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


def refused(run: RunDirectory, message: str) -> None:
    with pytest.raises(RunDirectoryError, match=message), locked(run, TRAINING):
        pass


def test_a_second_process_is_refused_and_told_who_holds(tmp_path):
    run = RunDirectory(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        refused(run, rf"process {holder.pid} on .* is preparing its data; wait for it, stop it")
        holder.send_signal(signal.SIGKILL)
    # What it leaves is harmless, and longer texts as well.
    stale = {"pid": 1, "host": "elsewhere", "more": "and longer text" * 20}
    run.lock_file.write_text(json.dumps(stale))
    with locked(run, TRAINING):
        assert json.loads(run.lock_file.read_text())["pid"] == os.getpid()


def test_a_second_holder_in_the_same_process_is_refused(tmp_path):
    run = RunDirectory(tmp_path)
    with pytest.raises(KeyError), locked(run, TRAINING):
        for _ in range(2):
            refused(run, "is training on")
        # An earlier version's, or one that has not written yet, does not say what it does.
        for content, holder in [
            ('{"pid": 7, "host": "there"}', "process 7 on there is working on it"),
            ("", "another process is working on it"),
            ("[]", "another process is working on it"),
        ]:
            run.lock_file.write_text(content)
            refused(run, holder)
        raise KeyError
    with locked(run, TRAINING):
        pass


def test_a_place_without_locks_is_said(tmp_path, monkeypatch):
    refused(RunDirectory(tmp_path / "absent"), "cannot be opened: No such file")

    def unsupported(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.warns(UserWarning, match="has no locks") as warned:
        with locked(RunDirectory(tmp_path), TRAINING):
            pass
    assert warned[0].filename == __file__
