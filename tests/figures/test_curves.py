"""Curves of made-up runs as picture and as page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.figures.axes import compact
from flaxformer_mt.figures.canvas import rendered
from flaxformer_mt.figures.curves import curves
from flaxformer_mt.figures.curves_page import curves_page
from flaxformer_mt.figures.panels import panels
from flaxformer_mt.figures.runs import AXES, Axis, RunLog, read_runs
from tests.figures.examples import Reader, data_of, svg_texts
from tests.figures.test_runs import make, train, valid


@pytest.fixture
def runs(tmp_path: Path) -> list[RunLog]:
    """One that went well; one with a gap, a NaN, two starts and no validation."""
    well = [train(100 * n, 5 / n, perplexity=100 / n) for n in range(1, 7)]
    well += [valid(600, 21.5)]
    steps = (100, 200, 300, 800, 900)
    badly = [train(step, float("nan") if step == 200 else 4.0) for step in steps]
    return read_runs(
        [
            str(make(tmp_path / "well", well)),
            f"<script>={make(tmp_path / 'badly', badly, starts=2)}",
        ]
    )


@pytest.mark.parametrize("axis", AXES)
def test_a_picture_has_titles_runs_and_notes(runs: list[RunLog], axis: Axis) -> None:
    layout = curves(runs, panels(runs), axis=axis)
    texts = svg_texts(rendered(layout, "svg"))
    for panel in panels(runs):
        assert panel.title in texts
    for run in runs:
        assert run.label() in texts
    assert "No bleu was reported by <script>." in texts
    assert "<script>: train reports are missing in 1 place(s): gaps" in texts
    assert {"steps": "steps", "tokens": "target tokens"}.get(
        axis, "hours of training steps"
    ) in texts


def test_a_gap_is_no_line_and_a_lone_point_a_dot(runs: list[RunLog]) -> None:
    """A NaN leaves 100 and 300 alone; nothing joins 300 and 800."""

    def strokes(run: RunLog) -> tuple[int, int]:
        content = rendered(curves([run], panels([run], ["loss"])), "svg").decode()
        lines = re.findall(r'<path d="([^"]+)"[^>]*style="fill: none; stroke: #0072b2', content)
        joined = sum(line.count("L") for line in lines if "C" not in line)
        return joined - 1, content.count('style="fill: #0072b2; stroke: #0072b2"')  # the legend's

    assert strokes(runs[0]) == (5, 0)
    assert strokes(runs[1]) == (1, 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (250, "250"), (5000, "5000"), (2.5e4, "25 k"), (1.5e6, "1.5 M"), (0.0007, "0.0007")],
)
def test_numbers_on_axes(value: float, text: str) -> None:
    assert compact(value) == text


def test_a_page_holds_the_curves_on_every_axis(runs: list[RunLog]) -> None:
    text = curves_page(runs, panels(runs), axis="tokens")
    reader = Reader(text)
    assert reader.open == [] and sum(tag == "script" for tag, _ in reader.tags) == 2
    assert "<script> (stopped at step 900, 2 starts)" in reader.text
    assert "21.5 (21.5)" in reader.text
    data = data_of(text)
    assert data["axis"] == "tokens" and set(data["axes"]) == set(AXES)
    loss = data["runs"][1]["curves"][0]
    assert loss["at"]["steps"] == [100, 200, 300, None, 800, 900]
    assert loss["values"] == [4.0, None, 4.0, None, 4.0, 4.0]
    assert data["runs"][0]["curves"][0]["at"]["tokens"][0] == 100 * 2 * 10
    assert not re.search(r"https?:|//[a-z]|url\(|@import", text.replace("http-equiv", "").replace(
        "http://www.w3.org/2000/svg", ""))  # fmt: skip


@pytest.mark.browser
@pytest.mark.extended
def test_in_a_browser_pointing_shows_values(
    browser: Any, runs: list[RunLog], tmp_path: Path
) -> None:
    file = tmp_path / "curves.html"
    file.write_text(curves_page(runs, panels(runs)), encoding="utf-8")
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    assert page.locator(".panel svg").count() == 5
    page.focus(".panel svg >> nth=2")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#reading") == "well: bleu (valid) 21.5 at 600 steps"
    assert page.locator(".panel >> nth=0").locator("path.curve").count() == 2
    page.focus("#runs input >> nth=1")
    page.keyboard.press("Space")
    assert page.locator(".panel >> nth=0").locator("path.curve").count() == 1
    page.focus("#axes input >> nth=0")
    page.keyboard.press("ArrowRight")
    page.hover(".panel svg >> nth=0")
    assert page.inner_text("#reading").endswith("target tokens")
    page.close()
    assert complaints == []
