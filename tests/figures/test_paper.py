"""The paper's formulas as pictures: the numbers drawn are the formulas'."""

from __future__ import annotations

import re

import numpy as np
import pytest

from flaxformer_mt.figures import FigureError
from flaxformer_mt.figures.canvas import Size, rendered
from flaxformer_mt.figures.paper import positions, schedule
from tests.figures.examples import png_size, svg_texts


def test_the_schedule_peaks_where_the_warm_up_ends() -> None:
    content = rendered(schedule([100, 400], d_model=512, steps=1000), "svg")
    assert {"100 warm-up steps", "400 warm-up steps", "steps"} <= set(svg_texts(content))
    for colour, warmup in (("#0072b2", 100), ("#d55e00", 400)):
        paths = re.findall(rf'<path d="([^"]+)"[^>]*fill: none; stroke: {colour}', content.decode())
        points = np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", max(paths, key=len)), float)
        left, right = points[0, 0], points[-1, 0]
        peak = 1 + 999 * (points[points[:, 1].argmin(), 0] - left) / (right - left)
        assert peak == pytest.approx(warmup, abs=3)


def test_positions_are_drawn_at_the_asked_size() -> None:
    layout = positions(40, d_model=64)
    assert png_size(rendered(layout, "png", size=Size(800, 400))) == (800, 400)
    assert "sinusoids, d_model 64 (blue −1, white 0, red 1)" in svg_texts(rendered(layout, "svg"))
    with pytest.raises(FigureError, match="d_model 7 is odd"):
        positions(40, d_model=7)
