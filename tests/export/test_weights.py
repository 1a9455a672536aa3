"""Between the parameter tree and plain matrices: inverse ways, and changes that change nothing."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.export import ExportError
from flaxformer_mt.export.parity import Reference
from flaxformer_mt.export.weights import (
    from_model,
    reorder_channels,
    usual_heads,
)
from flaxformer_mt.model.parameters import stack_layers
from tests.export.translators import LINES, translator

FORMS = [
    {},
    {"norm": "pre", "positions": "learned", "tie": "target"},
    {"tie": "none", "d_k": 3, "d_v": 5, "attention_bias": True, "logits_bias": True},
    {"encoder_layers": 3, "scan_layers": True, "attention_bias": True},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_there_and_back(form):
    made = translator(**form)
    config = made.model.config
    weights = from_model(made)
    again = unflatten_dict(weights, sep="/")
    if config.scan_layers:
        again = jax.tree.map(np.asarray, stack_layers(again))
    assert jax.tree.structure(again) == jax.tree.structure(made.params)
    jax.tree.map(np.testing.assert_array_equal, again, made.params)


def test_rows_that_stand_for_no_type_are_left_out():
    made = translator(vocab_multiple=64, logits_bias=True)
    weights = from_model(made)
    assert weights["embedding/shared"].shape[0] == 60
    assert weights["embedding/softmax_bias"].shape == (60,)


@pytest.mark.parametrize("form", [{"attention_bias": True}, {"norm": "pre"}], ids=str)
def test_reordered_channels_compute_the_same(form):
    """With learned positions, which are reordered along, nothing tells the orders apart."""
    made = translator(positions="learned", tie="target", **form)
    config, reference = made.model.config, Reference(made)
    sources, targets = tokens(made)
    expected = reference.log_probs(sources, targets)
    weights = from_model(made)
    order = np.random.default_rng(0).permutation(config.d_model)
    made.params = unflatten_dict(reorder_channels(weights, order), sep="/")
    for got, wanted in zip(Reference(made).log_probs(sources, targets), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-5)


@pytest.mark.parametrize(("d_k", "d_v"), [(3, 8), (8, 2), (1, 1)])
def test_narrower_heads_are_filled_up(d_k, d_v):
    made = translator(d_k=d_k, d_v=d_v, attention_bias=True)
    config = made.model.config
    sources, targets = tokens(made)
    expected = Reference(made).log_probs(sources, targets)
    weights = from_model(made)
    wide = dataclasses.replace(config, d_k=8, d_v=8)
    params = unflatten_dict(usual_heads(weights, config, "x"), sep="/")
    other = translator()
    other.params, other.model = params, dataclasses.replace(other.model, config=wide)
    for got, wanted in zip(Reference(other).log_probs(sources, targets), expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-5)


@pytest.mark.parametrize("form", [{"d_k": 9}, {"d_v": 16}, {"num_heads": 3, "d_k": 4, "d_v": 4}])
def test_wider_heads_are_refused(form):
    made = translator(**form)
    weights, config = from_model(made), made.model.config
    with pytest.raises(ExportError, match=r"Marian divides d_model .*do not fit into 16 / "):
        usual_heads(weights, config, "Marian")


def tokens(made):
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(LINES)]
    return sources, [[4 + (7 * n + k) % 50 for k in range(n + 2)] for n in range(len(sources))]
