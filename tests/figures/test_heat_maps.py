"""Heat maps: a map a head, a colour a weight."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
from PIL import Image

from flaxformer_mt.figures.canvas import rendered
from flaxformer_mt.figures.heat_maps import heat_maps
from flaxformer_mt.figures.maps import pick, shown
from tests.figures.examples import made_up, svg_texts

FOUND = made_up()


def test_every_map_has_its_labels_and_darker_is_more() -> None:
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


def test_rows_that_are_not_asked_for_are_left_out() -> None:
    content = rendered(heat_maps(pick(FOUND, kind="encoder", heads=(1,), query="cats")), "svg")
    assert maps(content)[0].shape == (2, 8)
    texts = svg_texts(content)
    assert texts.count("cat") == 2 and texts.count("see") == 1


def maps(content: bytes) -> list[np.ndarray]:
    """The images in an SVG, as darkness between 0 and 1."""
    found = re.findall(rb'xlink:href="data:image/png;base64,\s*([^"]+)"', content)
    images = [Image.open(io.BytesIO(base64.b64decode(each))).convert("L") for each in found]
    return [1 - np.asarray(image, np.float64) / 255 for image in images]
