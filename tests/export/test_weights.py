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
from flaxformer_mt.export.weights import from_model, reorder_channels, usual_heads
from flaxformer_mt.model.parameters import stack_layers
from tests.export.translators import LINES, translator


@pytest.mark.parametrize(
    "form",
    [
        {"norm": "pre", "positions": "learned", "tie": "target"},
        {"encoder_layers": 3, "scan_layers": True, "attention_bias": True, "logits_bias": True},
    ],
    ids=str,
)
def test_there_and_back(form):
    made = translator(**form)
    again = unflatten_dict(from_model(made), sep="/")
    if made.model.config.scan_layers:
        again = jax.tree.map(np.asarray, stack_layers(again))
    assert jax.tree.structure(again) == jax.tree.structure(made.params)
    jax.tree.map(np.testing.assert_array_equal, again, made.params)


@pytest.mark.parametrize("form", [{"attention_bias": True}, {"norm": "pre"}], ids=str)
def test_reordered_channels_compute_the_same(form):
    """With learned positions, which are reordered along, nothing tells the orders apart."""
    made = translator(positions="learned", tie="target", **form)
    expected = log_probs(made)
    order = np.random.default_rng(0).permutation(made.model.config.d_model)
    made.params = unflatten_dict(reorder_channels(from_model(made), order), sep="/")
    np.testing.assert_allclose(log_probs(made), expected, atol=2e-5)


def test_narrower_heads_are_filled_up():
    made = translator(d_k=3, d_v=5, attention_bias=True)
    expected = log_probs(made)
    params = unflatten_dict(usual_heads(from_model(made), made.model.config, "x"), sep="/")
    wide = dataclasses.replace(made.model.config, d_k=8, d_v=8)
    made.params, made.model = params, dataclasses.replace(made.model, config=wide)
    np.testing.assert_allclose(log_probs(made), expected, atol=2e-5)


@pytest.mark.parametrize("form", [{"d_k": 9}, {"d_v": 16}, {"num_heads": 3, "d_k": 4, "d_v": 4}])
def test_wider_heads_are_refused(form):
    made = translator(**form)
    with pytest.raises(ExportError, match=r"Marian divides d_model .*do not fit into 16 / "):
        usual_heads({}, made.model.config, "Marian")


def log_probs(made) -> np.ndarray:
    sources = [[*ids, EOS] for ids in made.vocabularies.src.encode(LINES)]
    targets = [[4 + (7 * n + k) % 50 for k in range(n + 2)] for n in range(len(sources))]
    return np.concatenate(Reference(made).log_probs(sources, targets))
