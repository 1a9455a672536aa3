"""Which settings weights of one run can start another with."""

import dataclasses

import pytest

from flaxformer_mt.api.starting import StartError, check_same_sizes
from flaxformer_mt.config import default_config, freeze


def with_positions(positions):
    tree = default_config()
    tree.model.positions = positions
    return freeze(tree, "test")


def test_sinusoids_may_change_but_not_to_a_table():
    paper, spread, learned = map(with_positions, ("sinusoidal", "tensor2tensor", "learned"))
    check_same_sizes(paper, spread, "runs/a")
    check_same_sizes(spread, paper, "runs/a")
    expected = "'model.positions' = sinusoidal there, learned here"
    with pytest.raises(StartError, match=expected):
        check_same_sizes(paper, learned, "runs/a")
    wider = dataclasses.replace(spread.model, d_ff=spread.model.d_ff * 2)
    with pytest.raises(StartError, match="'model.d_ff' = ") as refused:
        check_same_sizes(paper, dataclasses.replace(spread, model=wider), "runs/a")
    assert "positions" not in str(refused.value)
