"""Folders of a run in a bucket: fetched once, verified, uploaded whole."""

import os
import shutil

import pytest

from flaxformer_mt.rundir import RunDirectoryError, cache
from flaxformer_mt.rundir.cache import local_copy, preparing, upload_folder
from flaxformer_mt.rundir.lock import Holding
from flaxformer_mt.rundir.staged_files import growing_files
from tests.data.prepare.corpora import contents
from tests.rundir.buckets import fill, needs_clients

pytestmark = needs_clients


@pytest.fixture
def local(tmp_path):
    return fill(tmp_path / "data", "manifest.json")


def requests(gcs, bucket, method):
    """The names of files below the run for which there were such requests."""
    names = [
        name for made_method, name in gcs.log if made_method == method and name.startswith(bucket)
    ]
    return [name.removeprefix(f"{bucket}/runs/one/") for name in names]


def test_a_folder_is_fetched_once(gcs, bucket, remote, local):
    upload_folder(local, remote.data)
    assert requests(gcs, bucket, "PUT")[-2:] == ["data/files.json", "data/manifest.json"]
    first = local_copy(remote.data)
    assert contents(first) == contents(local)
    gcs.log.clear()
    assert local_copy(remote.data) == first
    assert not any(name.endswith("/tokens") for _, name in gcs.log)
    (first / "tokens").unlink()
    with pytest.raises(RunDirectoryError, match=f"tokens: damaged; delete {first}, and"):
        local_copy(remote.data)
    shutil.rmtree(first)
    assert local_copy(remote.data) == first
    del gcs.objects[f"{bucket}/runs/one/data/manifest.json"]
    with pytest.raises(RunDirectoryError, match=r"\(no manifest\.json\); run `prepare --workdir"):
        local_copy(remote.data)


def test_a_folder_copied_by_other_means_is_fetched_too(gcs, bucket, remote, local):
    for path, data in contents(local).items():
        gcs.put(f"{bucket}/runs/one/data/{path}", data)
    assert contents(local_copy(remote.data)) == contents(local)


@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_damage_in_the_bucket_is_refused(gcs, bucket, remote, local, tmp_path, damage):
    upload_folder(local, remote.data)
    name = f"{bucket}/runs/one/data/tokens"
    data = gcs.objects[name]
    damaged = data[:-1] if damage == "cut" else b"\xff" + data[1:]
    if damage == "delete":
        del gcs.objects[name]
    else:
        gcs.put(name, damaged)
    for _ in range(2):
        with pytest.raises(RunDirectoryError, match=r"data/tokens: .*upload the folder again"):
            local_copy(remote.data)
    assert not list((tmp_path / "cache").rglob("tokens"))
    gcs.put(name, data)
    assert contents(local_copy(remote.data)) == contents(local)


def test_of_two_that_fetch_at_once_both_have_it(remote, local, tmp_path, monkeypatch):
    upload_folder(local, remote.data)
    fetch = cache._at_once

    def interrupted(actions):
        monkeypatch.setattr(cache, "_at_once", fetch)
        local_copy(remote.data)  # another process is faster
        fetch(actions)

    monkeypatch.setattr(cache, "_at_once", interrupted)
    assert contents(local_copy(remote.data)) == contents(local)
    assert len(os.listdir(tmp_path / "cache" / "folders")) == 1, "nothing is left aside"


def make(folder) -> None:
    """What `prepare` does on an empty folder."""
    for name, index in cache.INDEX_FILES.items():
        if not (folder / name).exists():
            fill(folder / name, index)


def test_prepared_folders_are_uploaded_and_fetched_on_another_machine_alone(
    gcs, bucket, remote, tmp_path, monkeypatch
):
    with preparing(remote) as killed:
        left = killed / "data.partial"
        left.mkdir()
        with preparing(remote) as folder:  # as after a kill: the first has not cleaned up
            assert folder == killed and not left.exists()
    with preparing(remote) as folder:
        make(folder)
        prepared = contents(folder)
    assert not folder.exists()
    with preparing(remote) as again:
        assert contents(again / "data") == contents(local_copy(remote.data))
        assert (again / "data" / "tokens").exists()
    assert not any(name.endswith("tokens") for name in requests(gcs, bucket, "GET"))
    put = [name for name in requests(gcs, bucket, "PUT") if name.endswith(".json")]
    assert put == [
        *("config.json", "vocabulary/files.json", "vocabulary/vocabulary.json"),
        *("data/files.json", "data/manifest.json"),
    ]
    monkeypatch.setenv("FLAXFORMER_CACHE", str(tmp_path / "elsewhere"))
    with preparing(remote) as fetched:
        copied = {name: contents(fetched / name) for name in cache.INDEX_FILES}
        assert prepared == {f"{n}/{path}": data for n in copied for path, data in copied[n].items()}


def test_a_local_run_is_its_own_copy(run):
    with preparing(run) as folder:
        assert folder == run.path
    assert local_copy(run.data) == run.data
    with growing_files(run, Holding(), print) as growing:
        assert growing.metrics == run.metrics and growing.tensorboard == run.tensorboard
