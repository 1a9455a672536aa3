"""A run in a bucket: its record, its lock and the files that grow."""

import json
import os
import shutil
import time

import pytest

from flaxformer_mt.rundir import CheckpointError, RunDirectoryError, staged_files
from flaxformer_mt.rundir.layout import (
    Status,
    create,
    open_run,
    read_record,
    read_status,
    record_start,
    write_status,
)
from flaxformer_mt.rundir.lock import Holding, RemoteHolding, locked
from flaxformer_mt.rundir.metrics_log import MetricsLog, read_metrics
from flaxformer_mt.rundir.staged_files import StagedFiles, growing_files
from tests.conftest import eventually
from tests.rundir.buckets import needs_clients

pytestmark = needs_clients
TRAINING = "training on it"
FAST = {"beat": 0.1, "dead_after": 0.5}
THEIRS = b'{"pid": 9, "host": "elsewhere", "token": "theirs"}'


def test_record_and_status_are_read_back(gcs, bucket, remote):
    assert gcs.names(bucket) == [f"{bucket}/runs/one/config.json"]
    assert open_run(f"gs://{bucket}/runs/one") == remote
    record_start(remote, {"name": "other"}, ["again"])
    assert [start.command_line for start in read_record(remote).starts] == [("train",), ("again",)]
    assert read_status(remote) is None
    write_status(remote, Status(state="stopped", step=3))
    assert read_status(remote) == Status(state="stopped", step=3)


def test_a_run_in_a_bucket_is_not_made_over_another(remote):
    with pytest.raises(RunDirectoryError, match="already holds a run"):
        create(remote.path, {}, [])


def test_a_bucket_s_run_that_is_absent_or_cannot_be_reached_is_named(gcs, bucket):
    with pytest.raises(RunDirectoryError, match="gs://.*: no such directory; check the path"):
        open_run(f"gs://{bucket}/absent")
    gcs.fault = lambda method, name: 403
    with pytest.raises(RunDirectoryError, match=r"gs://.*: cannot be reached: .*Forbidden"):
        open_run(f"gs://{bucket}/absent")


def test_a_living_holder_is_named_and_a_killed_one_waited_for(remote):
    patient = FAST | {"dead_after": 60.0}  # a heartbeat is proof enough
    with locked(remote, "preparing its data", **patient) as lock:
        with pytest.raises(
            RunDirectoryError, match=rf"process {os.getpid()} on .* is preparing its data; wait"
        ):
            with locked(remote, TRAINING, **patient):
                pass
        lock.check()
    assert not remote.lock_file.exists()
    remote.lock_file.write_bytes(THEIRS)
    start = time.monotonic()
    with locked(remote, TRAINING, **FAST):
        assert time.monotonic() - start >= FAST["dead_after"]
        assert json.loads(remote.lock_file.read_bytes())["pid"] == os.getpid()


def test_of_two_at_once_one_gets_it(remote):
    first, second = (RemoteHolding(remote, TRAINING, beat=60.0) for _ in range(2))
    free = first._read()
    first.take(0.0)
    second._read = iter([free, second._read(), second._read()]).__next__  # it looked before
    with pytest.raises(RunDirectoryError, match="is training on it; wait"):
        second.take(0.0)
    first.check()
    first.release()
    assert not remote.lock_file.exists()

    # A write whose answer was lost and a removed lock cost nothing.
    with locked(remote, TRAINING) as lock:
        remote.lock_file.write_bytes(remote.lock_file.read_bytes())
        lock.check()
        remote.lock_file.unlink()
        lock.check()
        assert remote.lock_file.exists()


def test_a_holder_notices_that_it_was_replaced(remote):
    with locked(remote, TRAINING, **FAST) as lock:
        remote.lock_file.write_bytes(THEIRS)
        lock._thread.join(60)
        with pytest.raises(RunDirectoryError, match="process 9 on elsewhere took over this run"):
            lock.check()
        remote.lock_file.write_bytes(THEIRS)
    assert remote.lock_file.read_bytes() == THEIRS, "another's lock is not removed"


def test_a_lock_that_cannot_be_read_costs_a_save_and_not_the_run(gcs, remote):
    with locked(remote, TRAINING) as lock:
        gcs.fault = lambda method, name: 403 if name.endswith("/lock") else None
        with pytest.raises(CheckpointError, match="lock: cannot be written: .*saving nothing"):
            lock.check()
        gcs.allow()
        lock.check()


def reported(run) -> list[int]:
    return [line["step"] for line in read_metrics(run.metrics)]


def test_growing_files_reach_the_bucket_and_are_rewound(remote):
    with growing_files(remote, Holding(), print) as growing:
        with MetricsLog(growing.metrics) as log:
            for step in (1, 2, 3):
                log.write(step, {"loss": 1.0})
            growing.upload()
            assert reported(remote) == [1, 2, 3]
            log.write(4, {"loss": 1.0})
        growing.samples.mkdir()
        (growing.samples / "step-3.txt").write_text("a sample")
        staged = growing.metrics.parent
    assert not staged.exists()
    assert reported(remote) == [1, 2, 3, 4]
    assert (remote.samples / "step-3.txt").read_text() == "a sample"
    with growing_files(remote, Holding(), print) as growing:
        with MetricsLog(growing.metrics) as log:
            log.rewind(2)
            log.write(3, {"loss": 2.0})
    assert reported(remote) == [1, 2, 3]


def forbid(gcs, bucket: str) -> None:
    gcs.fault = lambda method, name: 403 if method == "PUT" and name.startswith(bucket) else None


def test_only_what_changed_is_uploaded_and_by_itself(gcs, bucket, remote, tmp_path, monkeypatch):
    monkeypatch.setattr(staged_files, "INTERVAL", 0.05)
    files = StagedFiles(remote, tmp_path, pytest.fail, Holding())
    files.metrics.write_text('{"step": 1}\n')
    (tmp_path / ".aside.tmp").write_text("not this")
    eventually(remote.metrics.exists)
    time.sleep(0.2)
    files.close()
    puts = [name for method, name in gcs.log if method == "PUT" and name.startswith(bucket)]
    assert puts.count(f"{bucket}/runs/one/metrics.jsonl") == 1
    assert not any("aside" in name for name in puts)


def test_a_failed_upload_is_said_and_made_up_for(gcs, bucket, remote, tmp_path):
    reports: list[str] = []
    files = StagedFiles(remote, tmp_path, reports.append, Holding())
    files.metrics.write_text('{"step": 1}\n')
    forbid(gcs, bucket)
    files.upload()
    files.upload()
    gcs.allow()
    files.upload()
    files.close()
    assert reported(remote) == [1]
    failed, again = reports
    assert "could not upload metrics, retrying" in failed and "Forbidden" in failed
    assert again == failed


def test_what_ended_training_is_what_is_raised(gcs, bucket, remote, monkeypatch):
    reports: list[str] = []
    with pytest.raises(KeyError), growing_files(remote, Holding(), reports.append) as growing:
        growing.metrics.write_text('{"step": 1}\n')
        forbid(gcs, bucket)
        raise KeyError
    assert "the last metrics" in reports[-1] and growing.metrics.exists()
    assert str(growing.metrics.parent) in reports[-1]
    shutil.rmtree(growing.metrics.parent)


def test_of_a_run_that_was_taken_over_nothing_is_uploaded(remote, monkeypatch):
    reports: list[str] = []
    with pytest.raises(RunDirectoryError, match="took over this run"):
        with (
            locked(remote, TRAINING, **FAST) as lock,
            growing_files(remote, lock, reports.append) as growing,
        ):
            lock._lost_to = "process 9 on elsewhere"
            growing.metrics.write_text('{"step": 1}\n')
            growing.upload()
    assert "took over this run" in reports[0] and not remote.metrics.exists()
    shutil.rmtree(growing.metrics.parent)
