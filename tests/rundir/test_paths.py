"""Which paths lie in a bucket; files that are the old ones or the new ones, and nothing beside."""

import errno
import importlib.util
import json
import os
from pathlib import Path, PurePosixPath
from unittest import mock

import pytest

from flaxformer_mt.rundir import RunDirectoryError, WorkdirError
from flaxformer_mt.rundir.paths import (
    as_path,
    is_primary,
    is_remote,
    read_json,
    write_json,
    write_text,
    writing,
)


def test_a_local_path_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for written in ("run", Path("run"), "./x/../run", str(tmp_path / "run")):
        path = as_path(written)
        assert path == tmp_path / "run" and type(path) is type(Path())
        assert not is_remote(path)
    assert as_path("~/run") == Path.home() / "run"
    assert as_path("c:/run") == tmp_path / "c:" / "run", "one letter names no store"
    assert as_path("gs:/run") == tmp_path / "gs:" / "run", "a folder of this name, typed so"


def test_a_process_of_its_own_is_the_first():
    assert is_primary()


@pytest.mark.parametrize("address", ["gs://b/a/run", "gs://b/a/run/", Path("gs://b/a/run")])
def test_a_path_in_a_bucket_keeps_its_address(monkeypatch, address):
    installed = importlib.util.find_spec("json")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed)
    path = as_path(address)
    assert is_remote(path) and str(path) == "gs://b/a/run"
    assert str(path / "config.json") == "gs://b/a/run/config.json"
    assert as_path(path) == path


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "'' is not a path: write . for"),
        ("gs://", "write a folder in a bucket: gs://BUCKET/FOLDER"),
        ("gs://bucket/", "write a folder in a bucket: gs://BUCKET/FOLDER"),
        ("s3://b/run", "s3://b/run: is neither a local path nor"),
    ],
)
def test_what_is_no_run_s_path_is_named(given, message):
    with pytest.raises(WorkdirError, match=message):
        as_path(given)


def test_missing_libraries_name_the_extra(monkeypatch):
    installed = importlib.util.find_spec("json")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "gcsfs" else installed
    )
    message = r"^gs://b/run: gcsfs not installed: pip install 'flaxformer-mt\[gcs\]'$"
    with pytest.raises(RunDirectoryError, match=message):
        as_path("gs://b/run")


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
def test_whatever_interrupts_it_the_old_file_alone_is_left(tmp_path, monkeypatch, step, error):
    path = tmp_path / "state.json"
    write_text(path, "old")
    monkeypatch.setattr(os, step, mock.Mock(side_effect=error))
    expected = RunDirectoryError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["state.json"]
    write_json(path, {"new": 1})
    assert json.loads(path.read_text()) == {"new": 1} and os.listdir(tmp_path) == ["state.json"]


def test_a_file_appears_when_its_block_ends_and_failures_are_named(tmp_path):
    path = tmp_path / "text"
    path.write_text("old")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), writing(path) as file:
            file.write("half")
            raise error
    with writing(path) as file:
        file.write("new\u2028\n")
        assert path.read_text() == "old"
    assert path.read_bytes() == "new\u2028\n".encode()
    assert list(tmp_path.iterdir()) == [path]

    class Remote(PurePosixPath):
        def read_bytes(self):
            raise RuntimeError("the token has expired")

    with pytest.raises(RunDirectoryError, match="run/a: cannot be read: .*the token has expired"):
        read_json(Remote("run/a"))
    with pytest.raises(RunDirectoryError, match=r"no/text: cannot be written: No such file"):
        with writing(tmp_path / "no" / "text"):
            pass
    with pytest.raises(RunDirectoryError, match=r"gs://bucket/text: is in a bucket"):
        with writing(as_path("gs://bucket/text")):
            pass
