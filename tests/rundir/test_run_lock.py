"""One writer at a time for each run directory on this machine."""

import errno
import fcntl
import json
import os
from unittest import mock

import pytest

from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.lock import locked

TRAINING = "training on it"


def refused(run: RunDirectory, message: str) -> None:
    with pytest.raises(RunDirectoryError, match=message), locked(run, TRAINING):
        pass


def test_a_second_holder_is_refused_and_told_who_holds(tmp_path):
    """Locks are of an open file: within a process as between two."""
    run = RunDirectory(tmp_path)
    # What a killed one leaves is harmless, and longer texts as well.
    stale = {"pid": 1, "host": "elsewhere", "more": "and longer text" * 20}
    run.lock_file.write_text(json.dumps(stale))
    with pytest.raises(KeyError), locked(run, "preparing its data"):
        assert json.loads(run.lock_file.read_text())["pid"] == os.getpid()
        for _ in range(2):
            refused(
                run, rf"process {os.getpid()} on .* is preparing its data; wait for it, or stop"
            )
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
    unsupported = OSError(errno.ENOLCK, "No locks available")
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=unsupported))
    with pytest.warns(UserWarning, match="no locks here") as warned:
        with locked(RunDirectory(tmp_path), TRAINING):
            pass
    assert warned[0].filename == __file__


def test_a_lock_that_is_no_file_of_the_run_is_refused(tmp_path):
    """A link's target is somebody else's, and a pipe has no content."""
    run, victim = RunDirectory(tmp_path / "run"), tmp_path / "victim"
    run.path.mkdir()
    victim.write_text("precious")
    run.lock_file.symlink_to(victim)
    refused(run, "lock: cannot be opened: is a symbolic link, whose target would be overwritten")
    assert victim.read_text() == "precious"
    run.lock_file.unlink()
    os.mkfifo(run.lock_file)
    refused(run, "lock: cannot be opened: not a regular file")
