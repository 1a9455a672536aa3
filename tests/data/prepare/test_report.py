"""Lengths, the picture, and how much text there is."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from backports import zstd
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data import synthetic
from flaxformer_mt.data.corpus import open_source
from flaxformer_mt.data.prepare import prepare, read_manifest
from flaxformer_mt.data.prepare.report import BINS, lengths_of, percentiles
from flaxformer_mt.data.prepare.sample import record_bytes, text_bytes
from tests.data.pairs import of_lengths
from tests.data.prepare.corpora import two_corpora

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=60)


@settings(deadline=None)
@given(LENGTHS)
def test_figures_are_those_of_the_lengths_written_out(values: list[int]) -> None:
    kinds, counts = np.unique(values, return_counts=True)
    found = percentiles(kinds[::-1], counts[::-1], (0, 50, 95, 99, 100))
    assert found == pytest.approx(np.percentile(values, [0, 50, 95, 99, 100]))
    sides = lengths_of(of_lengths(values, [2] * len(values)))
    figures = sides["src"]
    assert figures["tokens"] == sum(values) and figures["max"] == max(values)
    assert figures["mean"] == round(float(np.mean(values)), 2)
    # The histogram counts every sentence once.
    for side, side_lengths in (("src", values), ("tgt", [2] * len(values))):
        histogram = sides[side]["histogram"]
        width, counts = histogram["width"], histogram["counts"]
        assert len(counts) <= BINS and sum(counts) == len(values)
        for number, count in enumerate(counts):
            in_bin = [v for v in side_lengths if number * width < v <= (number + 1) * width]
            assert count == len(in_bin)


def test_the_picture_shows_lengths_and_drops(tmp_path: Path) -> None:
    prepare(two_corpora(tmp_path / "text", 300), seed=1, directory=tmp_path / "run")
    data = tmp_path / "run" / "data"
    manifest = read_manifest(data)
    svg = ElementTree.parse(data / "lengths.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    texts = [element.text for element in svg.iter(f"{name}text")]
    train = [account for account in manifest["corpora"] if account["split"] == "train"]
    for reason in {reason for account in train for reason in account["dropped"]}:
        count = sum(account["dropped"].get(reason, 0) for account in train)
        assert texts[texts.index(reason) + 1] == f"{count:,}"
    kept = sum(account["kept"] for account in train)
    assert f"{kept:,} training pairs by length in tokens, end mark included" in texts
    outlines = [element.get("d", "") for element in svg.iter(f"{name}path")]
    bins = [len(manifest["lengths"]["train"][s]["histogram"]["counts"]) for s in ("src", "tgt")]
    assert [outline.count("h") for outline in outlines] == bins
    width, height = float(svg.get("width", 0)), float(svg.get("height", 0))
    for element in svg.iter():
        assert 0 <= float(element.get("x", 0)) <= width
        assert 0 <= float(element.get("y", 0)) <= height


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_how_much_text_there_is_is_known_beforehand(tmp_path: Path, suffix: str) -> None:
    opened: dict[str, Any] = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".zst": zstd.open}
    pairs = [(src.encode(), tgt.encode()) for src, tgt in synthetic.pairs("train", 3000)]
    for side, name in enumerate(("a", "b")):
        with opened[suffix](tmp_path / f"{name}{suffix}", "wb") as stream:
            stream.write(b"".join(pair[side] + b"\n" for pair in pairs))
    source = open_source(CorpusConfig(src=f"a{suffix}", tgt=f"b{suffix}"), str(tmp_path))
    records = list(source.records())
    assert text_bytes(source) == record_bytes(records)
    assert text_bytes(open_source(CorpusConfig(kind="synthetic", size=9))) is None
    if suffix:
        (tmp_path / f"a{suffix}").write_bytes(b"nonsense")
        assert text_bytes(source) is not None
        with opened[suffix](tmp_path / f"a{suffix}", "wb") as stream:
            stream.write(b"again\n" * (4 << 20))  # 24 MiB, of which the beginning is read
        found = text_bytes(source)
        assert found is None or 18 << 20 < found < 32 << 20
