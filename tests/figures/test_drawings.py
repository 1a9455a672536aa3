"""Lines from piece to piece and heat maps: what is drawn, how strong, between which labels."""

import base64
import dataclasses
import io
import re

import numpy as np
import pytest
from PIL import Image

from flaxformer_mt.attention.weights import Picked, pick, shown
from flaxformer_mt.colours import head_colours
from flaxformer_mt.figures.canvas import rendered
from flaxformer_mt.figures.drawings import FAINTEST, heat_maps, line_drawing
from tests.figures.examples import made_up, svg_texts

FOUND = made_up()
STROKE = re.compile(
    rb'<path d="M [\d.]+ [\d.]+ \nL [\d.]+ [\d.]+ \n?"[^>]*?style="[^"]*?stroke: (#\w+)'
    rb'(?:; stroke-opacity: ([\d.]+))?[^"]*?stroke-width: ([\d.]+)'
)


def drawn(picked: Picked) -> tuple[list[tuple[str, float, float]], list[str]]:
    """Colour, opacity and width of each line, and all texts."""
    content = rendered(line_drawing(picked), "svg")
    strokes = [
        (colour.decode(), float(opacity or 1), float(width))
        for colour, opacity, width in STROKE.findall(content)
    ]
    return strokes, svg_texts(content)


def test_a_line_is_as_opaque_and_wide_as_its_weight_and_has_its_head_s_colour():
    weights = np.zeros((2, 8, 8), np.float32)
    weights[0, 2, 3], weights[1, 2, 5], weights[1, 0, 0] = 0.25, 0.75, FAINTEST / 2
    picked = dataclasses.replace(pick(FOUND, kind="encoder", heads=(1, 3)), weights=weights)
    (first, faint, thin), (second, strong, thick) = drawn(picked)[0]
    colours = head_colours(3)
    assert (first, second) == (colours[0], colours[2])  # the weaker one below
    assert (faint, strong) == pytest.approx((0.25, 0.75))
    assert thick > thin > 0


def test_lines_have_labels_and_a_query_leaves_other_lines_out():
    everything = pick(FOUND, kind="encoder")
    lines, texts = drawn(everything)
    assert len(lines) == (everything.weights >= FAINTEST).sum()
    assert {everything.title(), "1", "2", "3", "Weights below 1% are not drawn."} <= set(texts)
    for piece in everything.rows:
        assert texts.count(shown(piece)) == 2
    lines, texts = drawn(pick(FOUND, kind="encoder", query="cats"))
    assert len(lines) == (everything.weights[:, [1, 2]] >= FAINTEST).sum()
    assert texts.count("see") == 2


@pytest.mark.parametrize("heads", [2, 4, 8])
def test_heads_that_agree_are_seen_side_by_side(heads):
    pieces = (*"abcdefghijklmnopqrst", "</s>")
    attention = made_up(pieces, pieces, heads=heads)
    attention.cross[:] = 0
    attention.cross[:, :, (3, 0), (4, 20)] = 1  # a level link and a steep one
    drawing = line_drawing(pick(attention, kind="cross"))
    strokes = re.findall(
        rb'd="M ([\d.]+) ([\d.]+) \nL ([\d.]+) ([\d.]+) \n?"[^>]*?stroke-width: ([\d.]+)',
        rendered(drawing, "svg"),
    )
    lines = np.array(strokes, np.float64)
    assert len(lines) == 2 * heads
    for link in (lines[0::2], lines[1::2]):
        left, top, right, bottom, width = link.T
        assert np.ptp(top - bottom) == pytest.approx(0, abs=1e-3)  # parallel
        between = np.diff(top) * (right - left)[1:] / np.hypot(right - left, bottom - top)[1:]
        assert (between >= 0.98 * width[1:]).all() and width.min() > 0.2

    # In a PNG each head's own colour is there to be seen.
    image = np.asarray(Image.open(io.BytesIO(rendered(drawing, "png"))).convert("RGB"))
    seen = set(map(tuple, image[:, image.shape[1] // 2].tolist()))
    assert {tuple(bytes.fromhex(colour[1:])) for colour in head_colours(heads)} <= seen


def test_every_map_has_its_labels_and_darker_is_more():
    picked = pick(FOUND, kind="cross")
    content = rendered(heat_maps(picked), "svg")
    texts = svg_texts(content)
    for piece in (*picked.rows, *picked.columns):
        assert texts.count(shown(piece)) >= 3
    assert {"head 1", "head 2", "head 3", picked.title()} <= set(texts)
    for image, weights in zip(maps(content), picked.weights, strict=False):
        assert image.shape == weights.shape
        order = np.argsort(weights, axis=None)
        assert (np.diff(image.ravel()[order]) >= -1e-9).all()
        assert image.max() > image.min() + 0.3


def test_a_map_leaves_rows_out_that_are_not_asked_for():
    picked = pick(FOUND, kind="encoder", heads=(1,), query="cats")
    content = rendered(heat_maps(picked), "svg")
    assert maps(content)[0].shape == (2, 8)
    texts = svg_texts(content)
    assert texts.count("cat") == 2 and texts.count("see") == 1


def maps(content: bytes) -> list[np.ndarray]:
    """The images in an SVG, as darkness between 0 and 1."""
    links = re.findall(rb'xlink:href="data:image/png;base64,\s*([^"]+)"', content)
    images = [Image.open(io.BytesIO(base64.b64decode(encoded))).convert("L") for encoded in links]
    return [1 - np.asarray(image, np.float64) / 255 for image in images]
