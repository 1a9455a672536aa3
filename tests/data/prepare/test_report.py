"""Lengths, the picture, and how much text there is."""

import functools
import gzip
import lzma
import random
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from backports import zstd
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config.schema import CorpusConfig
from flaxformer_mt.data.corpus import open_source
from flaxformer_mt.data.corpus.pairs import EMPTY_SIDE, TRAINED_ON
from flaxformer_mt.data.prepare import sample
from flaxformer_mt.data.prepare.encode_corpora import Account
from flaxformer_mt.data.prepare.manifest import read_manifest
from flaxformer_mt.data.prepare.report import BINS, lengths_of
from flaxformer_mt.data.prepare.sample import record_bytes, text_bytes
from tests.data.pairs import of_lengths
from tests.data.prepare.corpora import prepare, two_corpora

LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=60)


@settings(deadline=None)
@given(LENGTHS)
def test_figures_are_those_of_the_lengths_written_out(values):
    sides = lengths_of(of_lengths(values, [2] * len(values)))
    figures = sides["src"]
    middle = np.percentile(values, [50, 95, 99], method="inverted_cdf").tolist()
    assert [figures["median"], figures["p95"], figures["p99"]] == middle
    assert figures["tokens"] == sum(values) and figures["max"] == max(values)
    assert figures["mean"] == round(float(np.mean(values)), 2)
    width, bins = figures["histogram"]["width"], figures["histogram"]["counts"]
    assert len(bins) <= BINS and sides["tgt"]["histogram"]["width"] == width
    assert bins == [
        sum(n * width < value <= (n + 1) * width for value in values) for n in range(len(bins))
    ]
    assert sum(bins) == sum(sides["tgt"]["histogram"]["counts"]) == len(values)


def test_a_pair_of_the_other_split_is_not_called_dropped():
    account = Account("data.valid", "valid", read=100, kept=10)
    account.drops.counts = {TRAINED_ON: 87, EMPTY_SIDE: 3}
    message = "data.valid: 100 pairs read, 10 kept, 87 used for training, dropped: 3 empty side"
    assert str(account) == message
    del account.drops.counts[EMPTY_SIDE]
    assert str(account) == "data.valid: 100 pairs read, 10 kept, 87 used for training"


def test_the_picture_shows_lengths(tmp_path):
    prepare(two_corpora(tmp_path / "text", 300), directory=tmp_path / "run")
    data = tmp_path / "run" / "data"
    manifest = read_manifest(data)
    svg = ElementTree.parse(data / "lengths.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    outlines = [element.get("d", "") for element in svg.iter(f"{name}path")]
    bins = [len(manifest["lengths"]["train"][s]["histogram"]["counts"]) for s in ("src", "tgt")]
    assert [outline.count("h") for outline in outlines] == bins


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz", ".zst"])
def test_how_much_text_there_is_is_known_beforehand(tmp_path, monkeypatch, suffix):
    packers: dict[str, Any] = {"": bytes, ".gz": gzip.compress, ".zst": zstd.compress}
    pack = packers.get(suffix, functools.partial(lzma.compress, preset=0))
    source = open_source(CorpusConfig(kind="synthetic", size=1000))
    assert text_bytes(source) is None
    pairs = list(source.records())
    for side, name in enumerate("ab"):
        text = b"".join(pair[side] + b"\n" for pair in pairs)
        (tmp_path / f"{name}{suffix}").write_bytes(pack(text))
    source = open_source(CorpusConfig(src=f"a{suffix}", tgt=f"b{suffix}"), str(tmp_path))
    assert text_bytes(source) == record_bytes(pairs)
    if suffix:
        (tmp_path / f"a{suffix}").write_bytes(b"nonsense")
        assert text_bytes(source) is not None
        # Of 6 MiB the beginning is read.
        monkeypatch.setattr(sample, "_HEAD", 1 << 20)
        text = random.Random(0).randbytes(3 << 20).hex().encode()
        (tmp_path / f"a{suffix}").write_bytes(pack(text))
        assert 18 << 18 < (text_bytes(source) or 0) < 32 << 18
