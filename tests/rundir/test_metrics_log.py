"""metrics.jsonl: durable line by line, whole after a kill, undisturbed by a resume; its sums."""

import json
import math
import os

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.metrics_log import MetricsLog, column, lost_after, progress, read_metrics
from tests.rundir.snapshots import full_disk


def write(path, *steps, **values):
    with MetricsLog(path) as log:
        for step in steps:
            log.write(step, {"loss": step / 2} | values)


def steps(path):
    return [report["step"] for report in read_metrics(path)]


def test_lines_are_read_back(tmp_path):
    """They are in the file at once, and numbers that JSON does not know are text in it."""
    path = tmp_path / "m.jsonl"
    assert read_metrics(path) == []
    plain = {"epoch": 2, "name": "straße", "done": False, "none": None, "a": math.inf}
    scalars = {"b": np.float32(0.5), "c": np.int64(3), "d": jnp.bfloat16(2), "e": -math.inf}
    with MetricsLog(path) as log:
        log.write(1, plain | scalars)
        expected = {"step": 1} | plain | {"b": 0.5, "c": 3, "d": 2.0, "e": -math.inf}
        assert read_metrics(path) == [expected]
        log.write(2, {"a": math.nan})
    for line in path.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert math.isnan(read_metrics(path)[1]["a"])


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


def test_a_resumed_log_equals_an_undisturbed_one(tmp_path):
    undisturbed, resumed = tmp_path / "a", tmp_path / "b"
    write(undisturbed, *range(0, 100, 10))
    write(resumed, *range(0, 80, 10))
    with MetricsLog(resumed) as log:
        log.rewind(50)
        for step in (60, 70, 80):
            log.write(step, {"loss": 0.0})
        log.rewind(50)  # and goes on in the new file
        for step in range(60, 100, 10):
            log.write(step, {"loss": step / 2})
    assert resumed.read_bytes() == undisturbed.read_bytes()
    inode = resumed.stat().st_ino
    with MetricsLog(resumed) as log:
        log.rewind(90)
    assert resumed.read_bytes() == undisturbed.read_bytes() and resumed.stat().st_ino == inode
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    ("steps_reported", "step", "last"),
    [
        ((), 9, None),
        ((), 10, 0),
        ((10, 20), 29, None),
        ((10, 20), 30, 20),
        ((50, 100), 149, None),  # reports were fewer before
        ((50, 100), 150, 100),
    ],
)
def test_missing_reports_are_found(steps_reported, step, last):
    assert lost_after([{"step": number} for number in steps_reported], step, every=10) == last


@pytest.mark.parametrize("bad", [b"nonsense", b"[1]", b'{"loss": 1}', b"", b"[" * 100_000, b"\xff"])
def test_a_bad_line_is_named(tmp_path, bad):
    path = tmp_path / "m"
    write(path, 1)
    path.write_bytes(path.read_bytes() + bad + b"\n")
    write(path, 3)
    with pytest.raises(RunDirectoryError, match=r"m:2: .*; delete that line"):
        read_metrics(path)


def test_a_full_disk_leaves_no_half_line(tmp_path):
    path = tmp_path / "m"
    write(path, 1)
    message = "cannot be written: File too large"
    with MetricsLog(path) as log:
        with full_disk(path.stat().st_size + 5), pytest.raises(RunDirectoryError, match=message):
            log.write(2, {"loss": 1.0})
    write(path, 3)
    assert steps(path) == [1, 3]


def test_an_unusable_path_is_named(tmp_path):
    with pytest.raises(RunDirectoryError, match="cannot be opened: Is a directory"):
        MetricsLog(tmp_path)
    with pytest.raises(RunDirectoryError, match="cannot be read: Is a directory"):
        read_metrics(tmp_path)


def train(step: int, seconds: float, src: float = 10.0, tgt: float = 20.0) -> dict[str, object]:
    rates = {"src_tokens_per_second": src, "tgt_tokens_per_second": tgt}
    return {"step": step, "kind": "train", "seconds_per_step": seconds, **rates}


def valid(step: int) -> dict[str, object]:
    return {"step": step, "kind": "valid", "loss": 1.0}


def test_sums_are_of_rates_since_the_report_before():
    """Without a rate a sum is not known from there on."""
    assert progress([]).seconds.tolist() == [0]
    reports = [train(10, 2.0), valid(10), train(14, 0.5, src=100.0, tgt=10.0), train(24, 1.0)]
    del reports[2]["src_tokens_per_second"]
    done = progress(reports)
    np.testing.assert_array_equal(done.steps, [0, 10, 14, 24])
    np.testing.assert_array_equal(done.seconds, [0, 20, 22, 32])
    np.testing.assert_array_equal(done.src_tokens, [0, 200, np.nan, np.nan])
    np.testing.assert_array_equal(done.tgt_tokens, [0, 400, 420, 620])
    gaps = [{"step": 1, "a": value} for value in (1, 2.5, math.inf, math.nan, "x", True, None)]
    np.testing.assert_array_equal(column([*gaps, {"step": 2}], "a"), [1, 2.5, *[np.nan] * 6])


def test_a_log_that_is_no_file_of_the_run_is_refused(tmp_path):
    """A torn line is cut off: of a link's target, which is somebody else's, that would be most."""
    path, victim = tmp_path / "metrics.jsonl", tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    with pytest.raises(RunDirectoryError, match=r"metrics\.jsonl: cannot be opened: is a symbolic"):
        MetricsLog(path)
    assert victim.read_text() == "precious"
    path.unlink()
    os.mkfifo(path)
    for read in (MetricsLog, read_metrics):
        with pytest.raises(RunDirectoryError, match="not a regular file"):
            read(path)
