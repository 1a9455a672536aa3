"""What is said of topologies that cannot be, and of rows that do not fit a config."""

from __future__ import annotations

import importlib.util

import pytest

from flaxformer_mt.config import freeze
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.planning.fit import largest_shape, shape_of
from flaxformer_mt.planning.plan import PlanningError
from flaxformer_mt.planning.topology import TopologyError, describe


@pytest.mark.parametrize(
    ("name", "slices", "message"),
    [
        ("v5e:2,4", 1, "is no topology: write VERSION:SIDES in chips, for example v5e:2x4"),
        ("v9:2x2", 1, "there is no TPU version 'v9'; versions: v2, v3, v4, v5e"),
        ("v5litepod:8", 1, "did you mean v5e"),
        ("a100:2x4", 1, "only TPU topologies .* measures kernels on a GPU"),
        ("v5e:2x4", 0, "at least one"),
    ],
)
def test_names(name, slices, message):
    with pytest.raises(TopologyError, match=message):
        describe(name, slices)


def test_without_the_compiler(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TopologyError, match=r"pip install 'flaxformer-mt\[tpu\]'"):
        describe("v5e:2x4")


def config_of(**batch):
    return freeze({"data": {"batch": batch}, "model": {"max_length": 256}}, "a test")


def test_shapes_without_data():
    config = config_of(tokens=25_000)
    assert largest_shape(config) == Shape(96, 256, 256)  # of 97 rows a multiple of 8
    assert shape_of(config, 32, 64) == Shape(384, 32, 64)
    shapes = (Shape(500, 10, 12), Shape(96, 250, 256), Shape(100, 240, 240))
    assert largest_shape(config, shapes) == shapes[1]
    packed = config_of(form="pack", tokens=8192, src_length=512, tgt_length=480)
    assert largest_shape(packed) == Shape(16, 512, 480)  # the model's length is a sentence's


@pytest.mark.parametrize(
    ("batch", "lengths", "message"),
    [
        ({"form": "pack"}, None, "name a prepared run with --workdir, give --lengths"),
        ({}, (64, 257), "a sentence of 257 tokens is longer than 'model.max_l"),
        ({"tokens": 256}, None, "raise it, or lower data.filter.max_length"),
    ],
)
def test_rows_that_cannot_be(batch, lengths, message):
    config = config_of(**batch)
    with pytest.raises(PlanningError, match=message):
        shape_of(config, *lengths) if lengths else largest_shape(config)
