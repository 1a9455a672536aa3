"""The fused loss where each type's logit has a bias: values and gradients of plain JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.training.loss import smoothed_cross_entropy

ROWS, LENGTH, D_MODEL, TYPES, TABLE = 2, 5, 4, 7, 9
SMOOTHING = 0.1


@pytest.mark.parametrize("chunk", [0, 4])
@pytest.mark.parametrize("types", [TYPES, TABLE])
def test_value_and_gradients_are_those_of_plain_jax(chunk, types):
    """With rows that stand for no type, and without."""
    random = np.random.default_rng(0)
    hidden = np.float32(random.standard_normal((ROWS, LENGTH, D_MODEL)))
    table = np.float32(random.standard_normal((TABLE, D_MODEL)))
    bias = np.float32(3 * random.standard_normal(TABLE))
    labels = random.integers(0, types, (ROWS, LENGTH)).astype(np.int32)
    weights = np.float32(np.arange(LENGTH) < np.array([[LENGTH], [2]]))

    def plain(hidden: jax.Array, table: jax.Array, bias: jax.Array) -> jax.Array:
        logits = jnp.einsum("rld,vd->rlv", hidden, table[:types]) + bias[None, None, :types]
        log_probs = jax.nn.log_softmax(logits)
        is_label = jax.nn.one_hot(labels, types)
        target = is_label * (1 - SMOOTHING) + (1 - is_label) * SMOOTHING / (types - 1)
        entropy = -(target * jnp.log(target)).sum(-1)
        return (weights * (-(target * log_probs).sum(-1) - entropy)).sum()

    def ours(hidden: jax.Array, table: jax.Array, bias: jax.Array) -> jax.Array:
        sums = smoothed_cross_entropy(
            hidden,
            table,
            labels,
            weights,
            smoothing=SMOOTHING,
            chunk=chunk,
            dtype="float32",
            types=types,
            bias=bias,
        )
        return sums.objective

    inputs = (hidden, table, bias)
    value, gradients = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(*inputs)
    wanted, wanted_gradients = jax.jit(jax.value_and_grad(plain, (0, 1, 2)))(*inputs)
    assert float(value) == pytest.approx(float(wanted), rel=1e-5)
    for got, expected in zip(gradients, wanted_gradients, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)
    assert np.abs(gradients[2][:types]).min() > 0
