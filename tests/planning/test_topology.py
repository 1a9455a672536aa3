"""What is said of topologies that cannot be."""

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
        ("v5e", 1, "write VERSION:SIDES in chips, for example v5e:2x4"),
        ("v9:2x2", 1, "there is no TPU version 'v9'; versions: v2, v3, v4, v5e"),
        ("v5litepod:8", 1, "did you mean v5e"),
        ("h100:8", 1, "only TPU topologies can be planned without the hardware"),
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


def test_shapes_without_data():
    config = freeze({"data": {"batch": {"tokens": 25_000}}}, "a test")
    assert largest_shape(config) == Shape(96, 256, 256)  # of 97 rows a multiple of 8
    assert shape_of(config, 32, 64) == Shape(384, 32, 64)
    shapes = (Shape(500, 10, 12), Shape(96, 250, 256), Shape(100, 240, 240))
    assert largest_shape(config, shapes) == shapes[1]


def test_packed_rows_have_their_own_lengths():
    batch = {"form": "pack", "tokens": 8192, "src_length": 512, "tgt_length": 480}
    assert largest_shape(freeze({"data": {"batch": batch}}, "a test")) == Shape(16, 512, 480)


def test_without_data_nobody_knows_how_long_a_packed_row_is():
    config = freeze({"data": {"batch": {"form": "pack"}}}, "a test")
    with pytest.raises(PlanningError, match="name a prepared run with --workdir, give --lengths"):
        largest_shape(config)
    assert shape_of(config, 600, 640).tgt_length == 640


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_rows_that_the_model_does_not_take(positions):
    config = freeze({"model": {"max_length": 256, "positions": positions}}, "a test")
    assert shape_of(config, 256, 256)
    with pytest.raises(PlanningError, match="a sentence of 257 tokens is longer than 'model.max_l"):
        shape_of(config, 64, 257)


def test_a_budget_below_one_row():
    with pytest.raises(PlanningError, match="raise it, or lower data.filter.max_length"):
        largest_shape(freeze({"data": {"batch": {"tokens": 256}}}, "a test"))
