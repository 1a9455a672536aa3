"""Reports as series: places on each axis, and what the log does not say.

Curves of made-up runs as picture and as page; the paper's formulas as pictures.
"""

import base64
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.canvas import rendered
from flaxformer_mt.figures.curves import curves, curves_page, panels, read_runs
from flaxformer_mt.figures.paper import positions, schedule
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.layout import Status, write_status
from flaxformer_mt.rundir.metrics_log import MetricsLog
from tests.figures.examples import Reader, svg_texts


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
    reports = [train(step, step / 100) for step in (100, 200, 300, 600, 700, 800)]
    reports[1]["loss"], reports[4]["loss"] = math.nan, math.inf
    del reports[4]["tgt_tokens_per_second"]
    (run,) = read_runs([str(make(tmp_path / "a", reports))])
    series = run.series["train"]
    np.testing.assert_array_equal(series["loss"], [1, np.nan, 3, 6, np.nan, 8])
    assert np.isnan(series["tokens"]).tolist() == [False] * 4 + [True] * 2
    assert np.isfinite(series["hours"]).all()
    assert run.notes[0] == "2 of 6 train reports have no finite loss: gaps in its curve"
    assert "unknown after them" in run.notes[1]


DIVERGED = [
    {"step": step, "kind": "train", "loss": math.nan, "perplexity": math.inf} for step in (1, 2)
]


@pytest.mark.parametrize("names", [(), ("loss",)])
def test_a_run_without_any_finite_value_is_explained(tmp_path, names):
    runs = read_runs([str(make(tmp_path / "a", DIVERGED))])
    with pytest.raises(FigureError, match=r"a: no report has a finite|none with a finite value"):
        panels(runs, names)


@pytest.mark.parametrize(
    ("loss", "perplexity"),
    [(700.0, 1e304), (-1.7e308, 1.7e308), (0.0, 0.0), (3.0, 10**400), (1e-320, 1e-320)],
)
def test_what_a_diverging_run_reports_can_be_drawn(tmp_path, loss, perplexity):
    """Without a warning of matplotlib's, which is an error here."""
    reports = [train(1, loss, perplexity=perplexity), train(2, 2.0, perplexity=7.0)]
    reports = reports[:1] if loss == 0 else reports
    runs = read_runs([str(make(tmp_path / "a", reports + DIVERGED))])
    assert "<svg" in rendered(curves(runs, panels(runs)), "svg").decode()


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
    runs = read_runs([str(first), str(make(tmp_path / "b", [train(1, 1.0), valid(1, 3.0)]))])
    named = "loss perplexity bleu learning_rate tgt_tokens_per_second".split()
    assert [panel.name for panel in panels(runs)] == named
    assert [panel.name for panel in panels(runs[:1])] == [named[0], *named[3:]]
    bleu, mfu = panels(runs, ["bleu", "mfu"])
    assert [panel.shows(run) for panel in (bleu, mfu) for run in runs] == [False, True, True, False]
    assert (mfu.title, mfu.kinds) == ("mfu", ("train",))
    with pytest.raises(FigureError, match="no run has reported 'blue'; there are: loss, "):
        panels(runs, ["blue"])


@pytest.fixture
def runs(tmp_path):
    """One that went well; one with a NaN, two starts and no validation."""
    well = [train(100 * n, 5 / n, perplexity=100 / n) for n in range(1, 7)]
    well += [valid(600, 21.5)]
    steps = (100, 200, 300, 800, 900)
    badly = [train(step, float("nan") if step == 200 else 4.0) for step in steps]
    worse = make(tmp_path / "badly", badly, starts=2)
    return read_runs([str(make(tmp_path / "well", well)), f"<script>={worse}"])


def test_a_page_holds_picture_table_and_notes(runs):
    text = curves_page(runs, panels(runs), axis="hours")
    reader = Reader(text)
    assert reader.open == [] and "21.5 (21.5)" in reader.text
    (source,) = (dict(attributes)["src"] for tag, attributes in reader.tags if tag == "img")
    kind, _, content = (source or "").partition(",")
    assert kind == "data:image/svg+xml;base64"
    notes = {
        "No bleu from <script>.",
        "<script>: 1 of 5 train reports have no finite loss: gaps in its curve",
    }
    labels = {"well (stopped at step 600)", "<script> (stopped at step 900, 2 starts)"}
    assert all(words in reader.text for words in labels | notes)
    titles = {panel.title for panel in panels(runs)}
    texts = set(svg_texts(base64.b64decode(content)))
    assert titles | labels | notes | {"hours of training steps"} <= texts
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text.replace(source or "", ""))


def test_the_schedule_peaks_where_the_warm_up_ends_and_positions_are_drawn():
    content = rendered(schedule([100, 400], d_model=512, steps=1000), "svg")
    assert {"100 warm-up steps", "400 warm-up steps", "steps"} <= set(svg_texts(content))
    for colour, warmup in (("#0072b2", 100), ("#d55e00", 400)):
        paths = re.findall(rf'<path d="([^"]+)"[^>]*fill: none; stroke: {colour}', content.decode())
        points = np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", max(paths, key=len)), float)
        left, right = points[0, 0], points[-1, 0]
        peak = 1 + 999 * (points[points[:, 1].argmin(), 0] - left) / (right - left)
        assert peak == pytest.approx(warmup, abs=3)
    layout = positions(40, d_model=64)
    assert "sinusoids, d_model 64 (blue −1, white 0, red 1)" in svg_texts(rendered(layout, "svg"))
    with pytest.raises(FigureError, match="d_model 7 is odd"):
        positions(40, d_model=7)
