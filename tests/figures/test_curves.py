"""Curves of made-up runs as picture and as page; the paper's formulas as pictures."""

import base64
import re

import numpy as np
import pytest

from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.canvas import rendered
from flaxformer_mt.figures.curves import curves_page, panels, read_runs
from flaxformer_mt.figures.paper import positions, schedule
from tests.figures.examples import Reader, svg_texts
from tests.figures.test_runs import make, train, valid


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
    assert all(each in reader.text for each in labels | notes)
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
