"""Rows of the embeddings for types that a vocabulary gets after training."""

import dataclasses

import numpy as np
import pytest

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.embedding import table_rows, with_rows

BEFORE, AFTER = (6, 5), (8, 6)  # source and target types


def parameters(config: ModelConfig) -> dict:
    random = np.random.default_rng(0)
    src, tgt = (table_rows(config, types) for types in BEFORE)
    by_tie = {
        "all": {"shared": src},
        "target": {"source": src, "target": tgt},
        "none": {"source": src, "target": tgt, "softmax": tgt},
    }
    tables = {name: random.normal(size=(rows, 4)) for name, rows in by_tie[config.tie].items()}
    tables["softmax_bias"] = random.normal(size=src if config.tie == "all" else tgt)
    tables["source_positions"] = random.normal(size=(9, 4))
    return {"embedding": tables, "encoder": {"w": np.ones(2)}}


@pytest.mark.parametrize("tie", ["all", "target", "none"])
@pytest.mark.parametrize("multiple", [1, 4])
def test_old_rows_stay_and_new_ones_are_their_mean(tie, multiple):
    config = ModelConfig(tie=tie, vocab_multiple=multiple, logits_bias=True)
    before, after = (BEFORE, AFTER) if tie != "all" else ((6, 6), (8, 8))
    params = parameters(config)
    extended = with_rows(params, config, before, after)
    assert extended["encoder"] is params["encoder"]
    for name, old in params["embedding"].items():
        new = np.asarray(extended["embedding"][name])
        if name == "source_positions":
            assert new is old
            continue
        side = 0 if name == "source" else 1
        types, types_after = before[side], after[side]
        assert new.shape == (table_rows(config, types_after), *old.shape[1:])
        assert np.array_equal(new[:types], old[:types])
        for row in new[types:types_after]:
            assert np.allclose(row, old[:types].mean(axis=0), atol=1e-6)
        assert not new[types_after:].any()


def test_no_new_types_change_nothing_else_than_padding():
    config = dataclasses.replace(ModelConfig(), logits_bias=True)
    params = parameters(config)
    same = with_rows(params, config, (6, 6), (6, 6))
    assert np.allclose(same["embedding"]["shared"], params["embedding"]["shared"])
