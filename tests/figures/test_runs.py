"""Reports as series: places on each axis, and what the log does not say."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.curves import panels, read_runs
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.layout import Status, write_status
from flaxformer_mt.rundir.metrics_log import MetricsLog


def train(step: int, loss: float, **values: float) -> dict[str, Any]:
    rates = {"seconds_per_step": 2.0, "tgt_tokens_per_second": 10.0}
    return {"step": step, "kind": "train", "loss": loss, "learning_rate": 1e-3, **rates, **values}


def valid(step: int, bleu: float) -> dict[str, Any]:
    return {"step": step, "kind": "valid", "bleu": bleu, "perplexity": 2.0}


def make(path: Path, reports: list[dict[str, Any]], *, starts: int = 1) -> Path:
    run = layout.create(path, {}, ["test"])
    for _ in range(starts - 1):
        layout.record_start(run, {}, ["test"])
    with MetricsLog(run.metrics) as log:
        for report in reports:
            log.write(report["step"], {key: report[key] for key in report if key != "step"})
    write_status(run, Status(state="stopped", step=reports[-1]["step"] if reports else 0))
    return path


def test_tokens_and_hours_are_sums_of_rates(tmp_path):
    reports = [
        train(100, 5.0),
        valid(150, 1.0),
        train(200, 4.0, seconds_per_step=1.0, tgt_tokens_per_second=30.0),
        valid(200, 2.0),
        valid(250, 3.0),
    ]
    (run,) = read_runs([str(make(tmp_path / "a", reports))])
    series = run.series["train"]
    np.testing.assert_array_equal(series["steps"], [100, 200])
    np.testing.assert_allclose(series["tokens"], [100 * 2 * 10, 2000 + 100 * 1 * 30])
    np.testing.assert_allclose(series["hours"], [200 / 3600, 300 / 3600])
    np.testing.assert_allclose(run.series["valid"]["tokens"], [3500, 5000, np.nan])
    np.testing.assert_array_equal(series["loss"], [5, 4])
    assert run.label() == "a (stopped at step 250)" and run.notes == ()


def test_what_the_log_lacks_is_a_gap_and_is_told(tmp_path):
    steps = (100, 200, 300, 600, 700, 800)
    reports = [train(step, step / 100) for step in steps]
    reports[1]["loss"], reports[4]["loss"] = math.nan, math.inf
    del reports[4]["tgt_tokens_per_second"]
    (run,) = read_runs([str(make(tmp_path / "a", reports))])
    series = run.series["train"]
    np.testing.assert_array_equal(series["loss"], [1, np.nan, 3, 6, np.nan, 8])
    assert np.isnan(series["tokens"]).tolist() == [False] * 4 + [True] * 2
    assert np.isfinite(series["hours"]).all()
    assert run.notes[0] == "2 of 6 train reports have no finite loss: gaps in its curve"
    assert "unknown after them" in run.notes[1]


def test_names_are_as_short_as_they_can_be(tmp_path):
    for name in ("x/run", "y/run", "z=1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        make(tmp_path / name, [train(1, 1.0)])
    x, y, z = (str(tmp_path / name) for name in ("x/run", "y/run", "z=1"))
    assert [run.name for run in read_runs([x, z])] == ["run", "z=1"]
    assert [run.name for run in read_runs([x, y])] == ["x/run", "y/run"]
    assert [run.name for run in read_runs([f"base={x}", y])] == ["base", "run"]
    with pytest.raises(FigureError, match="best is given twice"):
        read_runs([f"best={x}", f"best={y}"])
    with pytest.raises(FigureError, match="empty: has no reports yet"):
        read_runs([str(make(tmp_path / "empty", []))])


def test_panels_are_of_what_was_reported(tmp_path):
    first = make(tmp_path / "a", [train(1, 1.0, mfu=0.4)])
    second = make(tmp_path / "b", [train(1, 1.0), valid(1, 3.0)])
    runs = read_runs([str(first), str(second)])
    named = "loss perplexity bleu learning_rate tgt_tokens_per_second".split()
    assert [panel.name for panel in panels(runs)] == named
    assert [panel.name for panel in panels(runs[:1])] == [named[0], *named[3:]]
    bleu, mfu = panels(runs, ["bleu", "mfu"])
    assert [panel.shows(run) for panel in (bleu, mfu) for run in runs] == [False, True, True, False]
    assert (mfu.title, mfu.kinds) == ("mfu", ("train",))
    with pytest.raises(FigureError, match="no run has reported 'blue'; there are: loss, "):
        panels(runs, ["blue"])
