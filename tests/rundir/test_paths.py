"""Which paths lie in a bucket, and what is said where that cannot be."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from flaxformer_mt.rundir import RunDirectoryError, WorkdirError, paths
from flaxformer_mt.rundir.paths import as_path, is_primary, is_remote, persistently


def test_a_local_path_is_an_absolute_pathlib_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in ("run", Path("run"), "./x/../run", str(tmp_path / "run")):
        path = as_path(given)
        assert path == tmp_path / "run" and type(path) is type(Path())
        assert not is_remote(path)
    assert as_path("~/run") == Path.home() / "run"
    assert as_path("c:/run") == tmp_path / "c:" / "run", "one letter names no store"
    assert as_path("gs:/run") == tmp_path / "gs:" / "run", "a folder of this name, typed so"


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(paths, "_installed", lambda module: True)


@pytest.mark.parametrize("given", ["gs://b/a/run", "gs://b/a/run/", Path("gs://b/a/run")])
def test_a_bucket_s_path_keeps_its_address(given, installed):
    path = as_path(given)
    assert is_remote(path) and str(path) == "gs://b/a/run"
    assert str(path / "config.json") == "gs://b/a/run/config.json"
    assert as_path(path) == path


@pytest.mark.parametrize("given", ["gs://", "gs://bucket", "gs://bucket/"])
def test_a_bucket_alone_is_no_run(given, installed):
    with pytest.raises(RunDirectoryError, match="name a folder in a bucket: gs://BUCKET/FOLDER"):
        as_path(given)


def test_an_empty_path_is_not_the_current_directory():
    with pytest.raises(WorkdirError, match="'' is not a path: name it, or write ."):
        as_path("")


def test_other_stores_are_named(installed):
    with pytest.raises(RunDirectoryError, match="s3://b/run: is neither a local path nor"):
        as_path("s3://b/run")


@pytest.mark.parametrize("missing", ["gcsfs", "google.cloud.storage"])
def test_missing_libraries_name_the_extra(missing, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == missing else find("json"),
    )
    with pytest.raises(RunDirectoryError) as raised:
        as_path("gs://b/run")
    assert str(raised.value) == (
        f"gs://b/run: {missing} not installed; to use buckets: pip install 'flaxformer-mt[gcs]'"
    )


def test_a_process_of_its_own_is_the_first():
    assert is_primary()


def test_persistence_ends():
    calls = []

    def fail():
        calls.append(1)
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        persistently(fail, waits=(0, 0))
    assert len(calls) == 3
