"""Lines from piece to piece: which are drawn, how thick, in which colour, between which labels."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from flaxformer_mt.figures.canvas import head_colours, rendered
from flaxformer_mt.figures.line_drawing import FAINTEST, line_drawing
from flaxformer_mt.figures.maps import KINDS, Kind, Picked, pick, shown
from tests.figures.examples import made_up, svg_texts

FOUND = made_up()
STROKE = re.compile(
    rb'<path d="M ([\d.]+) ([\d.]+) \nL ([\d.]+) ([\d.]+) \n?"[^>]*?style="[^"]*?stroke: (#\w+)'
    rb'(?:; stroke-opacity: ([\d.]+))?[^"]*?stroke-width: ([\d.]+)'
)


def strokes(picked: Picked) -> list[tuple[str, float, float]]:
    """Colour, opacity and width of each line."""
    content = rendered(line_drawing(picked, heads=3), "svg")
    return [
        (colour.decode(), float(opacity or 1), float(width))
        for *_, colour, opacity, width in STROKE.findall(content)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_texts_of_the_file(kind: Kind) -> None:
    picked = pick(FOUND, kind=kind)
    texts = svg_texts(rendered(line_drawing(picked, heads=3), "svg"))
    for piece in (*picked.rows, *picked.columns):
        assert shown(piece) in texts
    assert picked.title() in texts and {"1", "2", "3"} <= set(texts)
    assert "Weights below 1% are not drawn." in texts


def test_a_line_is_as_opaque_and_wide_as_its_weight_and_has_its_head_s_colour() -> None:
    weights = np.zeros((2, 8, 8), np.float32)
    weights[0, 2, 3], weights[1, 2, 5], weights[1, 0, 0] = 0.25, 0.75, FAINTEST / 2
    picked = dataclasses.replace(pick(FOUND, kind="encoder", heads=(1, 3)), weights=weights)
    (first, faint, thin), (second, strong, thick) = strokes(picked)
    colours = head_colours(3)
    assert (first, second) == (colours[0], colours[2])  # the weaker one below
    assert (faint, strong) == pytest.approx((0.25, 0.75))
    assert thick > thin > 0


def test_a_query_leaves_the_others_out() -> None:
    picked = pick(FOUND, kind="encoder", query="cats")
    drawn = picked.weights[:, [1, 2]]
    assert len(strokes(picked)) == (drawn >= FAINTEST).sum()
    everything = pick(FOUND, kind="encoder")
    assert len(strokes(everything)) == (everything.weights >= FAINTEST).sum()


def test_colours_tell_heads_apart() -> None:
    for count in (1, 4, 8, 16, 32):
        colours = head_colours(count)
        assert len(set(colours)) == count
        assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)
    assert head_colours(8)[:3] == head_colours(3)
