"""metrics.jsonl: durable line by line, whole after a kill, undisturbed by a resume."""

from __future__ import annotations

import json
import math
import os
import resource
import signal

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.metrics_log import MetricsLog, lost_after, read_metrics


def write(path, *steps, **values):
    with MetricsLog(path) as log:
        for step in steps:
            log.write(step, {"loss": step / 2} | values)


def steps(path):
    return [report["step"] for report in read_metrics(path)]


def test_lines_are_read_back(tmp_path):
    path = tmp_path / "m.jsonl"
    assert read_metrics(path) == []
    with MetricsLog(path) as log:
        log.write(1, {"loss": 0.1, "epoch": 2, "name": "straße", "done": False, "none": None})
        # On disk already, with the log still open.
        assert read_metrics(path) == [
            {"step": 1, "loss": 0.1, "epoch": 2, "name": "straße", "done": False, "none": None}
        ]


def test_array_scalars_are_numbers(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, 1, a=np.float32(0.5), b=jnp.float32(0.25), c=np.int64(3), d=jnp.bfloat16(2))
    assert read_metrics(path) == [{"step": 1, "loss": 0.5, "a": 0.5, "b": 0.25, "c": 3, "d": 2.0}]


def test_non_finite_numbers_survive_as_valid_json(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, 1, a=math.nan, b=math.inf, c=-math.inf)

    def refuse(constant):
        raise AssertionError(constant)

    json.loads(path.read_text(), parse_constant=refuse)
    (report,) = read_metrics(path)
    assert math.isnan(report["a"]) and report["b"] == math.inf and report["c"] == -math.inf


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"x"])
def test_other_values_are_refused(tmp_path, value):
    with MetricsLog(tmp_path / "m") as log, pytest.raises(TypeError, match="'bad'"):
        log.write(1, {"bad": value})
    with MetricsLog(tmp_path / "m") as log, pytest.raises(ValueError, match="step"):
        log.write(1, {"step": 2})


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 400), st.integers(0, 6))
def test_any_cut_is_repaired(tmp_path_factory, cut, more):
    """Cut the file anywhere, as a kill may: what is left is a beginning of the log, and goes on."""
    path = tmp_path_factory.mktemp("log") / "m.jsonl"
    write(path, 1, 2, 3, name="ü" * 30)
    data = path.read_bytes()
    path.write_bytes(data[:cut])
    complete = data[:cut].count(b"\n")
    assert steps(path) == [1, 2, 3][:complete], "a reader looks away from the torn line"
    write(path, *range(10, 10 + more))
    assert steps(path) == [1, 2, 3][:complete] + list(range(10, 10 + more))


def test_a_torn_line_longer_than_a_block_is_cut(tmp_path):
    path = tmp_path / "m.jsonl"
    write(path, 1)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": 2, "text": "' + b"x" * 20_000)
    MetricsLog(path).close()
    assert path.read_bytes() == whole


def test_a_resumed_log_equals_an_undisturbed_one(tmp_path):
    undisturbed, resumed = tmp_path / "a", tmp_path / "b"
    write(undisturbed, *range(0, 100, 10))
    write(resumed, *range(0, 80, 10))
    with MetricsLog(resumed, resume_step=50) as log:
        assert log.dropped == 2
        for step in range(60, 100, 10):
            log.write(step, {"loss": step / 2})
    assert resumed.read_bytes() == undisturbed.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    ("steps", "step", "lost"),
    [
        ([], 9, None),
        ([], 10, 0),
        ([10, 20, 30], 39, None),
        ([10, 20, 30], 40, 30),
        ([10, 20, 30], 30, None),
        ([10, 20, 30, 50], 30, None),  # a later one is dropped, and none is missing
        ([100, 200], 290, None),  # reports came every 100 steps then
        ([100, 200], 300, 200),
    ],
)
def test_reports_that_are_missing_at_the_end_are_noticed(steps, step, lost):
    assert lost_after([{"step": each} for each in steps], step, every=10) == lost


def test_resuming_at_the_last_step_changes_nothing(tmp_path):
    path = tmp_path / "m"
    write(path, 1, 2)
    inode = path.stat().st_ino
    with MetricsLog(path, resume_step=2) as log:
        assert log.dropped == 0
    assert path.stat().st_ino == inode and steps(path) == [1, 2]


def test_rewinding_while_open_goes_on_in_the_new_file(tmp_path):
    path = tmp_path / "m"
    with MetricsLog(path) as log:
        for step in (1, 2, 3):
            log.write(step, {})
        assert log.rewind(1) == 2
        log.write(2, {"again": True})
    assert read_metrics(path) == [{"step": 1}, {"step": 2, "again": True}]


@pytest.mark.parametrize("bad", [b"nonsense", b"[1]", b'{"loss": 1}', b"", b"[" * 100_000, b"\xff"])
def test_a_bad_line_is_named(tmp_path, bad):
    path = tmp_path / "m"
    write(path, 1)
    path.write_bytes(path.read_bytes() + bad + b"\n")
    write(path, 3)
    with pytest.raises(RunDirectoryError, match=r"m:2: .*; delete that line"):
        read_metrics(path)


def test_a_full_disk_leaves_no_half_line(tmp_path):
    """With a limit on the file's size, which fails as a full disk does: in mid-line."""
    path = tmp_path / "m"
    write(path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with MetricsLog(path) as log:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, limits[1]))
            with pytest.raises(RunDirectoryError, match="cannot be written: File too large"):
                log.write(2, {"loss": 1.0})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, previous)
        log.write(3, {})
    assert steps(path) == [1, 3]


def test_an_unusable_path_is_named(tmp_path):
    with pytest.raises(RunDirectoryError, match="cannot be opened: Is a directory"):
        MetricsLog(tmp_path)
    with pytest.raises(RunDirectoryError, match="cannot be read: Is a directory"):
        read_metrics(tmp_path)
