"""The compiled training step is the one that is known: a guard of speed that times nothing."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from flaxformer_mt.config import load_config
from flaxformer_mt.model.flops import shape_flops
from tests.training import golden

WANTED = json.loads(golden.FILE.read_text(encoding="utf-8"))
WITHIN = 0.03

of_this_compiler = pytest.mark.skipif(
    WANTED["compiler"] != golden.compiler(),
    reason=f"golden figures are of {WANTED['compiler']}: `python -m tests.training.golden`",
)


@functools.cache
def found(name: str) -> dict[str, Any]:
    return golden.summary(name)


@of_this_compiler
@pytest.mark.parametrize("name", golden.CASES)
def test_as_in_the_golden_file(name):
    """`python -m tests.training.golden` writes it anew."""
    wanted, actual = dict(WANTED["steps"][name]), dict(found(name))
    ours, theirs = (flat(table) for table in (actual, wanted))
    assert ours.keys() == theirs.keys()
    other = {key: (theirs[key], ours[key]) for key in ours if not near(ours[key], theirs[key])}
    assert not other, (
        f"the compiled step of '{name}' has changed, from and to: {other}; if that is meant, "
        "write the golden file anew with `python -m tests.training.golden`"
    )


def test_products_are_those_of_the_formula():
    """Nothing is computed twice. (Of `tiny` XLA counts one chunk of the loss's loop.)"""
    spec, overrides, shape = golden.CASES["base"]
    expected = shape_flops(
        load_config(spec, overrides).model,
        golden.VOCAB,
        rows=shape.rows,
        src_length=shape.src_length,
        tgt_length=shape.tgt_length,
    )
    assert expected < found("base")["flops"] < 1.05 * expected


def test_near_is_within_three_percent_and_counts_to_the_whole():
    assert near(1030, 1000) and near(970, 1000)
    assert not near(1031, 1000) and not near(969, 1000)
    assert near(0, 0) and not near(1, 0) and not near(2, 1)


def flat(table: dict[str, Any]) -> dict[str, float]:
    """Operations beside the totals; a kind that has gone is 0."""
    operations = dict.fromkeys(
        [*golden.KINDS, *(f"fused {kind}" for kind in golden.KINDS)], 0
    ) | table.pop("operations")
    return {**table, **operations}


def near(actual: float, wanted: float) -> bool:
    return abs(actual - wanted) <= WITHIN * wanted
