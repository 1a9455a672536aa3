"""Which settings weights of one run can start another with."""

import dataclasses

import numpy as np
import pytest

from flaxformer_mt.api.starting import StartError, check_same_sizes, require_trained
from flaxformer_mt.config import TrainingConfig, default_config, freeze, to_dict
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import RunDirectory


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


def test_changed_sinusoids_are_said(tmp_path, capsys):
    """A config of another origin may change them unseen."""
    spread, paper = with_positions("tensor2tensor"), with_positions("sinusoidal")
    source = layout.create(tmp_path / "a", to_dict(spread), ["x"])
    with Checkpoints(source.checkpoints, TrainingConfig()) as checkpoints:
        params = {"x": np.zeros(1, np.float32)}
        checkpoints.save(Snapshot(step=0, params=params, opt_state={}, position={}))
    new = RunDirectory(tmp_path / "b")
    require_trained(new, str(source), spread)
    assert capsys.readouterr().err == ""
    require_trained(new, str(source), paper)
    said = capsys.readouterr().err
    assert f"{source}: 'model.positions' = tensor2tensor there, sinusoidal here" in said
    assert "some hundred steps" in said
