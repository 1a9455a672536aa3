"""Folders of a run in a bucket: fetched once, verified, uploaded whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from flaxformer_mt.rundir import RunDirectoryError, cache
from flaxformer_mt.rundir.cache import local_copy, preparing, upload_folder
from flaxformer_mt.rundir.layout import create
from flaxformer_mt.rundir.staged_files import growing_files
from tests.rundir.buckets import fill, needs_clients
from tests.rundir.snapshots import ENVIRONMENT

pytestmark = needs_clients


def same_files(one, other) -> bool:
    def content(folder):
        return {
            path.relative_to(folder): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }

    return content(one) == content(other)


def test_a_folder_is_fetched_once(gcs, bucket, remote, tmp_path):
    local = fill(tmp_path / "data", "manifest.json")
    upload_folder(local, remote.data)
    puts = [
        name for method, name in gcs.log if method == "PUT" and f"{bucket}/runs/one/data" in name
    ]
    assert [name.split("/")[-1] for name in puts[-2:]] == ["files.json", "manifest.json"]
    first = local_copy(remote.data)
    assert same_files(first, local)
    gcs.log.clear()
    assert local_copy(remote.data) == first
    assert not any(name.endswith("/tokens") for _, name in gcs.log)


def test_a_folder_copied_by_other_means_is_fetched_too(gcs, bucket, remote, tmp_path):
    local = fill(tmp_path / "data", "manifest.json")
    for path in local.rglob("*"):
        if path.is_file():
            gcs.put(f"{bucket}/runs/one/data/{path.relative_to(local)}", path.read_bytes())
    assert same_files(local_copy(remote.data), local)


def test_an_incomplete_folder_is_not_there(gcs, bucket, remote, tmp_path):
    upload_folder(fill(tmp_path / "data", "manifest.json"), remote.data)
    del gcs.objects[f"{bucket}/runs/one/data/manifest.json"]
    with pytest.raises(RunDirectoryError, match=r"manifest\.json is missing; `prepare --workdir"):
        local_copy(remote.data)


@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_a_damaged_folder_is_refused_and_not_kept(
    gcs, bucket, remote, tmp_path, damage, monkeypatch
):
    upload_folder(fill(tmp_path / "data", "manifest.json"), remote.data)
    name = f"{bucket}/runs/one/data/tokens"
    data = gcs.objects[name]
    if damage == "delete":
        del gcs.objects[name]
        monkeypatch.setattr(cache, "persistently", lambda action: action())
    else:
        gcs.put(name, data[:-1] if damage == "cut" else b"\xff" + data[1:])
    for _ in range(2):
        with pytest.raises(RunDirectoryError, match="data/tokens: .*upload the folder anew"):
            local_copy(remote.data)
    assert not list((tmp_path / "cache").rglob("tokens"))
    gcs.put(name, data)
    assert (local_copy(remote.data) / "tokens").read_bytes() == data


@pytest.mark.parametrize("damage", ["cut", "flip", "delete"])
def test_a_copy_that_was_damaged_here_is_fetched_anew(remote, tmp_path, damage, caplog):
    local = fill(tmp_path / "data", "manifest.json")
    upload_folder(local, remote.data)
    copy = local_copy(remote.data) / "tokens"
    if damage == "delete":
        copy.unlink()
    else:
        data = copy.read_bytes()
        copy.write_bytes(data[:-1] if damage == "cut" else b"\xff" + data[1:])
    assert same_files(local_copy(remote.data), local)
    assert "tokens" in caplog.text and "fetching it anew" in caplog.text


def test_of_a_large_file_only_the_size_is_looked_at(remote, tmp_path, monkeypatch):
    local = fill(tmp_path / "data", "manifest.json")
    upload_folder(local, remote.data)
    local_copy(remote.data)
    monkeypatch.setattr(cache, "_VERIFIED", 100)
    read, whole = [], cache._sha256
    monkeypatch.setattr(cache, "_sha256", lambda path: read.append(path.name) or whole(path))
    local_copy(remote.data)
    assert "tokens" not in read and "manifest.json" in read
    (local_copy(remote.data) / "tokens").write_bytes(b"short")
    assert same_files(local_copy(remote.data), local)


FETCH = """
import sys
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.layout import open_run
print(local_copy(open_run(sys.argv[1]).data))
"""


@pytest.mark.extended
def test_processes_fetch_at_once_without_harm(gcs, remote, tmp_path):
    local = fill(tmp_path / "data", "manifest.json")
    upload_folder(local, remote.data)
    command = [sys.executable, "-c", FETCH, str(remote)]
    environment = {**os.environ, **ENVIRONMENT, **gcs.environment()}
    environment["FLAXFORMER_CACHE"] = str(tmp_path / "cache")
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    places = {process.communicate(timeout=100)[0].strip() for process in running}
    assert len(places) == 1
    assert same_files(local_copy(remote.data), local)
    assert len(os.listdir(tmp_path / "cache" / "folders")) == 1, "nothing is left aside"


def make(folder) -> None:
    """What `prepare` does on an empty folder."""
    for name, index in cache.INDEX.items():
        if not (folder / name).exists():
            fill(folder / name, index)


def test_prepared_folders_are_uploaded_and_not_fetched_again(gcs, bucket, remote, tmp_path):
    with preparing(remote) as folder:
        make(folder)
    assert same_files(folder / "data", local_copy(remote.data))
    with preparing(remote) as again:
        assert (again / "data" / "tokens").exists()
    assert again == folder
    assert not any(
        method == "GET" and name.endswith("tokens")
        for method, name in gcs.log
        if name.startswith(bucket)
    )
    indices = [
        name.split("/")[-1]
        for method, name in gcs.log
        if method == "PUT" and name.startswith(bucket) and name.endswith(".json")
    ]
    assert indices == [
        "config.json",
        "files.json",
        "vocabulary.json",
        "files.json",
        "manifest.json",
    ]


def test_on_another_machine_they_are_fetched(gcs, remote, tmp_path, monkeypatch):
    with preparing(remote) as folder:
        make(folder)
    monkeypatch.setenv("FLAXFORMER_CACHE", str(tmp_path / "elsewhere"))
    with preparing(remote) as other:
        assert other != folder
        assert same_files(other / "data", folder / "data")
        assert same_files(other / "vocabulary", folder / "vocabulary")


def test_an_interrupted_prepare_or_upload_goes_on(gcs, bucket, remote, monkeypatch):
    monkeypatch.setattr(cache, "persistently", lambda action: action())
    with pytest.raises(KeyError), preparing(remote) as folder:
        (folder / "data.partial").mkdir()
        raise KeyError
    assert (folder / "data.partial").exists()
    gcs.fault = lambda method, name: 403 if method == "PUT" and "tokens" in name else None
    with pytest.raises(RunDirectoryError, match="cannot be written"), preparing(remote) as folder:
        assert (folder / "data.partial").exists()
        make(folder)
    assert not (remote.data / "manifest.json").exists()
    gcs.fault = lambda method, name: None
    with preparing(remote) as folder:
        assert (folder / "data" / "tokens").exists(), "made already"
    assert (remote.data / "manifest.json").exists()


def test_another_run_at_the_same_address_starts_anew(gcs, bucket, remote, monkeypatch):
    with preparing(remote) as folder:
        make(folder)
    for name in gcs.names(bucket):
        del gcs.objects[name]
    from flaxformer_mt.rundir import layout

    monkeypatch.setattr(
        layout,
        "_this_start",
        lambda command: layout.Start(
            time="later", command_line=(), python="", packages={}, git_commit=None
        ),
    )
    create(remote.path, {}, [])
    with preparing(remote) as other:
        assert other != folder and not (other / "data").exists()


def test_a_local_run_is_its_own_copy(run):
    with preparing(run) as folder:
        assert folder == run.path
    assert local_copy(run.data) == run.data
    with growing_files(run) as growing:
        assert growing.metrics == run.metrics and growing.tensorboard == run.tensorboard
