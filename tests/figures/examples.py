"""Attention made up for tests, and what can be read off files."""

import json
import re
import xml.etree.ElementTree
from html.parser import HTMLParser
from typing import Any

import numpy as np

from flaxformer_mt.decoding.teacher_forcing import Attention

SOURCE = ("▁the", "▁cat", "s", "▁see", "▁$x^2$", "▁<b>", ".", "</s>")
TARGET = ("▁die", "▁Katze", "n", "▁sehen", ".", "</s>")


def made_up(
    source: tuple[str, ...] = SOURCE,
    target: tuple[str, ...] = TARGET,
    *,
    layers: int = 2,
    heads: int = 3,
    seed: int = 0,
) -> Attention:
    """Rows that sum to 1; the decoder's own without a look ahead."""
    random = np.random.default_rng(seed)

    def weights(rows: int, columns: int, *, causal: bool = False) -> Any:
        logits = 2 * random.standard_normal((layers, heads, rows, columns))
        shares = np.exp(logits) * (np.tri(rows, columns) if causal else 1)
        return (shares / shares.sum(axis=-1, keepdims=True)).astype(np.float32)

    return Attention(
        src_pieces=source,
        tgt_pieces=target,
        tgt_inputs=("<s>", *target[:-1]),
        encoder=weights(len(source), len(source)),
        decoder=weights(len(target), len(target), causal=True),
        cross=weights(len(target), len(source)),
    )


class Reader(HTMLParser):
    """Tags with attributes, and all text outside of style and script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data


def data_of(page: str) -> Any:
    """The JSON that a page carries."""
    (content,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(content)


def png_size(content: bytes) -> tuple[int, int]:
    """Width and height in pixels, from the header."""
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


def svg_size(content: bytes) -> tuple[float, float]:
    """Width and height in pixels, of which 96 make an inch."""
    (head,) = re.findall(rb"<svg [^>]*", content)
    width, height = (
        float(side) * 96 / 72
        for name in (b"width", b"height")
        for side in re.findall(name + rb'="([\d.]+)pt"', head)
    )
    return width, height


def svg_texts(content: bytes) -> list[str]:
    """The texts of an SVG in their order."""
    texts = xml.etree.ElementTree.fromstring(content).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()) for element in texts]
