"""The model against a float64 NumPy reference: values, and gradients by finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.model.embedding import softmax_table
from tests.model import reference
from tests.model.examples import VOCAB, apply, build, hidden_of, jit, packed_rows, tiny_config

MARIAN = {"activation": "silu", "attention_bias": True, "logits_bias": True}
COMBINATIONS = [
    {"norm": "post", "positions": "sinusoidal", "tie": "all"},
    {"norm": "post", "positions": "learned", "tie": "target"},
    {"norm": "pre", "positions": "sinusoidal", "tie": "target"},
    {"norm": "pre", "positions": "learned", "position_scale": "sqrt_d_model", "tie": "none"},
    {"norm": "post", "positions": "tensor2tensor", "tie": "all", **MARIAN},
    {"norm": "pre", "tie": "none", **MARIAN},
    {"d_k": 4, "d_v": 4, "num_heads": 1},
    {"d_k": 6, "d_v": 2, "num_heads": 4, "encoder_layers": 3, "decoder_layers": 1},
]


def ids(options):
    return "-".join(map(str, options.values()))


def reference_hidden(params, config, rows):
    return reference.forward(
        params, config, rows.src, rows.tgt_in, rows.src_segment_ids, rows.tgt_segment_ids
    )


@pytest.mark.parametrize("options", COMBINATIONS, ids=ids)
def test_hidden_states_equal_the_reference(options):
    config = tiny_config(**options)
    model, params = build(config)
    rows = packed_rows()
    hidden = np.asarray(hidden_of(model, params, rows))
    real = rows.tgt_segment_ids != 0
    assert hidden.dtype == np.float32
    np.testing.assert_allclose(
        hidden[real], reference_hidden(params, config, rows)[real], atol=1e-5, rtol=0
    )
    assert np.isfinite(hidden).all(), "rows with nothing to attend to must not make NaN"


@pytest.mark.parametrize("options", [COMBINATIONS[0], *COMBINATIONS[3:5]], ids=ids)
def test_gradients_equal_finite_differences_of_the_reference(options):
    config = tiny_config(**options)
    model, params = build(config)
    rows = packed_rows(2)
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((*rows.tgt_in.shape, config.d_model))
    weights *= (rows.tgt_segment_ids != 0)[..., None]

    def loss(params):
        return jnp.sum(apply(model, params, rows) * weights)

    def reference_loss(params):
        return np.sum(reference_hidden(params, config, rows) * weights)

    gradients = jax.tree.leaves_with_path(jit(jax.grad(loss))(params))
    exact = reference.to_float64(params)
    step = 1e-5
    for path, gradient in gradients:
        leaf = exact
        for entry in path:
            leaf = leaf[entry.key]
        index = tuple(rng.integers(0, size) for size in leaf.shape)
        if path[0].key == "embedding" and path[1].key in ("shared", "source", "target"):
            index = (int(rng.choice(rows.src[rows.src != 0])), index[1])
        value = leaf[index]
        leaf[index] = value + step
        above = reference_loss(exact)
        leaf[index] = value - step
        below = reference_loss(exact)
        leaf[index] = value
        difference = (above - below) / (2 * step)
        name = jax.tree_util.keystr(path)
        assert abs(gradient[index] - difference) < 2e-4 * (1 + abs(difference)), (name, index)


@pytest.mark.parametrize("logits_bias", [False, True])
def test_logits_are_hidden_states_times_the_softmax_table_and_a_bias(logits_bias):
    for tie in ("all", "target", "none"):
        config = tiny_config(tie=tie, logits_bias=logits_bias)
        model, params = build(config)
        hidden = np.random.default_rng(0).standard_normal((2, 3, config.d_model))
        logits = model.apply({"params": params}, jnp.float32(hidden), method="logits")
        table = reference.to_float64(softmax_table(params, config))
        assert table.shape[0] == (VOCAB if tie == "all" else VOCAB + 4)
        assert logits.dtype == jnp.float32
        bias = params["embedding"]["softmax_bias"] if logits_bias else np.zeros(len(table))
        assert bias.shape == (len(table),)
        np.testing.assert_allclose(logits, hidden @ table.T + bias, atol=1e-5)


def test_bfloat16_stays_near_float32_and_keeps_float32_results():
    exact_config = tiny_config(decoder_layers=1)
    _, params = build(exact_config)
    rows = packed_rows()
    real = rows.tgt_segment_ids != 0

    def run(config):
        model, _ = build(config)

        def loss(params):
            hidden = apply(model, params, rows)
            return jnp.sum(jnp.where(real[..., None], hidden, 0.0) ** 3), hidden

        return jit(jax.grad(loss, has_aux=True))(params)

    exact, exact_hidden = run(exact_config)
    rough, rough_hidden = run(tiny_config(decoder_layers=1, dtype="bfloat16"))
    assert rough_hidden.dtype == jnp.float32
    distance = np.abs(np.asarray(rough_hidden - exact_hidden))[real]
    assert 1e-4 < distance.mean() < 0.03, "bfloat16 operands, and no worse than they must be"
    cosine = lambda a, b: np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)  # noqa: E731
    for (path, a), b in zip(jax.tree.leaves_with_path(exact), jax.tree.leaves(rough), strict=True):
        assert b.dtype == jnp.float32
        assert cosine(np.ravel(a), np.ravel(b)) > 0.95, jax.tree_util.keystr(path)
