"""The fused loss against a float64 reference, its gradient, and what it never holds in memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.training.loss import (
    LossSums,
    slice_width,
    smoothed_cross_entropy,
    smoothing_constant,
)

ROWS, LENGTH, D_MODEL, VOCAB = 3, 7, 5, 11
CHUNKS = (0, 1, 6, 9, 1000)  # with 3 rows at a time 7, 1, 2, 3, 7 of 7 positions


def example(seed: int = 0) -> tuple[np.ndarray, ...]:
    """hidden, table, labels, weights; the last positions of two rows are padding."""
    random = np.random.default_rng(seed)
    hidden = random.standard_normal((ROWS, LENGTH, D_MODEL)).astype(np.float32)
    table = random.standard_normal((VOCAB, D_MODEL)).astype(np.float32)
    labels = random.integers(0, VOCAB, (ROWS, LENGTH)).astype(np.int32)
    weights = (np.arange(LENGTH) < np.array([[7], [4], [1]])).astype(np.float32)
    return hidden, table, labels, weights


def reference(
    hidden: np.ndarray,
    table: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    smoothing: float,
) -> tuple[float, float]:
    """Objective and negative log-likelihood in float64, straight from their definitions.

    The objective is the Kullback-Leibler divergence of the model from the smoothed target: the
    cross-entropy above the lowest that any model can have.
    """
    logits = np.einsum("rld,vd->rlv", hidden.astype(np.float64), table.astype(np.float64))
    log_z = np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True))
    log_probs = logits - logits.max(-1, keepdims=True) - log_z
    one_hot = np.eye(table.shape[0])[labels]
    target = one_hot * (1 - smoothing) + (1 - one_hot) * smoothing / (table.shape[0] - 1)
    log_target = np.log(np.where(target > 0, target, 1.0))
    divergence = (target * (log_target - log_probs)).sum(-1)
    nll = -(one_hot * log_probs).sum(-1)
    return float((weights * divergence).sum()), float((weights * nll).sum())


@functools.cache
def compiled(smoothing: float, chunk: int, dtype: str = "float32") -> Callable[..., Any]:
    """(hidden, table, labels, weights) -> (LossSums, gradients of hidden and table)."""

    def objective(*inputs: jax.Array) -> tuple[jax.Array, LossSums]:
        sums = smoothed_cross_entropy(*inputs, smoothing=smoothing, chunk=chunk, dtype=dtype)
        return sums.objective, sums

    gradient = jax.jit(jax.grad(objective, (0, 1), has_aux=True))
    return lambda *inputs: gradient(*inputs)[::-1]


@settings(deadline=None)
@given(rows=st.integers(1, 300), length=st.integers(1, 600), chunk=st.integers(0, 9000))
def test_slices_are_even(rows: int, length: int, chunk: int) -> None:
    """No more positions at a time than were asked for, in as few slices, and hardly any padding."""
    width = slice_width(rows, length, chunk)
    most = length if chunk == 0 else max(1, chunk // rows)
    count = math.ceil(length / most)
    assert 1 <= width <= most and count * width - length < count


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_value_equals_the_reference(chunk, smoothing):
    inputs = example()
    sums, _ = compiled(smoothing, chunk)(*inputs)
    objective, nll = reference(*inputs, smoothing)
    assert float(sums.objective) == pytest.approx(objective, rel=1e-6)
    assert float(sums.nll) == pytest.approx(nll, rel=1e-6)
    assert float(sums.tokens) == 7 + 4 + 1
    for leaf in jax.tree.leaves(sums):
        assert leaf.dtype == jnp.float32
        assert leaf.shape == ()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", CHUNKS)
def test_gradient_equals_finite_differences(chunk, smoothing):
    """Along random directions of both inputs, the reference's differences in float64."""
    hidden, table, labels, weights = example()
    _, gradients = compiled(smoothing, chunk)(hidden, table, labels, weights)
    d_hidden, d_table = (np.asarray(gradient, np.float64) for gradient in gradients)
    random, step = np.random.default_rng(1), 1e-5
    for _ in range(5):
        to_hidden = random.standard_normal(hidden.shape)
        to_table = random.standard_normal(table.shape)
        ahead, behind = (
            reference(
                hidden + sign * step * to_hidden,
                table + sign * step * to_table,
                labels,
                weights,
                smoothing,
            )[0]
            for sign in (1, -1)
        )
        slope = (d_hidden * to_hidden).sum() + (d_table * to_table).sum()
        assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-4)


@pytest.mark.parametrize("chunk", [0, 4])
@pytest.mark.parametrize("types", [7, VOCAB])
def test_with_a_bias_value_and_gradients_are_those_of_plain_jax(chunk, types):
    """Every element, with rows that stand for no type and without, and with a factor behind the
    loss as the division by tokens is."""
    hidden, table, labels, weights = example()
    bias = np.float32(3 * np.random.default_rng(1).standard_normal(VOCAB))
    labels %= types

    def plain(hidden: jax.Array, table: jax.Array, bias: jax.Array) -> jax.Array:
        logits = jnp.einsum("rld,vd->rlv", hidden, table[:types]) + bias[None, None, :types]
        log_probs = jax.nn.log_softmax(logits)
        is_label = jax.nn.one_hot(labels, types)
        target = is_label * 0.9 + (1 - is_label) * 0.1 / (types - 1)
        entropy = -(target * jnp.log(target)).sum(-1)
        return (weights * (-(target * log_probs).sum(-1) - entropy)).sum() / 12

    def ours(hidden: jax.Array, table: jax.Array, bias: jax.Array) -> jax.Array:
        sums = smoothed_cross_entropy(
            hidden,
            table,
            labels,
            weights,
            smoothing=0.1,
            chunk=chunk,
            dtype="float32",
            types=types,
            bias=bias,
        )
        return sums.objective / 12

    inputs = (hidden, table, bias)
    value, gradients = jax.jit(jax.value_and_grad(ours, (0, 1, 2)))(*inputs)
    wanted, wanted_gradients = jax.jit(jax.value_and_grad(plain, (0, 1, 2)))(*inputs)
    assert float(value) == pytest.approx(float(wanted), rel=1e-5)
    for got, expected in zip(gradients, wanted_gradients, strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)
    assert np.abs(gradients[2][:types]).min() > 0


@pytest.mark.parametrize("chunk", [0, 6])
def test_sums_without_a_gradient_are_the_same(chunk):
    """Validation takes the pass that leaves the gradient out."""
    inputs = example()
    plain = functools.partial(smoothed_cross_entropy, smoothing=0.1, chunk=chunk, dtype="float32")
    got, (wanted, _) = jax.jit(plain)(*inputs), compiled(0.1, chunk)(*inputs)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert float(a) == pytest.approx(float(b), rel=1e-6)


def test_padding_has_no_gradient_and_no_say():
    hidden, table, labels, weights = example()
    sums, (d_hidden, _) = compiled(0.1, 6)(hidden, table, labels, weights)
    assert np.all(np.asarray(d_hidden)[weights == 0] == 0)
    assert np.all(np.asarray(d_hidden)[weights > 0] != 0)

    other_labels = np.where(weights > 0, labels, (labels + 1) % VOCAB)
    other_hidden = np.where(weights[..., None] > 0, hidden, 100.0).astype(np.float32)
    other, _ = compiled(0.1, 6)(other_hidden, table, other_labels, weights)
    assert float(sums.objective) == float(other.objective)


# --- the constant, and what is reported -------------------------------------------------------


@pytest.mark.parametrize(("smoothing", "vocab"), [(0.1, 11), (0.1, 37_000), (0.3, 2), (0.0, 9)])
def test_constant_is_the_entropy_of_the_smoothed_target(smoothing, vocab):
    target = np.full(vocab, smoothing / (vocab - 1))
    target[0] = 1 - smoothing
    entropy = -(target * np.log(np.where(target > 0, target, 1.0))).sum()
    assert smoothing_constant(smoothing, vocab) == pytest.approx(entropy)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_objective_of_a_perfect_model_is_zero(smoothing):
    """A table that is the identity makes of the target's own logarithms the target."""
    labels = np.arange(VOCAB)[None]
    target = np.full((VOCAB, VOCAB), max(smoothing, 1e-12) / (VOCAB - 1), np.float32)
    np.fill_diagonal(target, 1 - smoothing)
    hidden, table = np.log(target)[None], np.eye(VOCAB, dtype=np.float32)
    weights = np.ones((1, VOCAB), np.float32)
    sums, (gradient, _) = compiled(smoothing, 0)(hidden, table, labels, weights)
    assert float(sums.objective) == pytest.approx(0, abs=1e-5)
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_what_is_reported_knows_nothing_of_smoothing():
    """Perplexity is exp(nll / tokens): the same for every smoothing, and no gradient through it."""
    inputs = example()
    (plain, _), (smoothed, _) = compiled(0.0, 0)(*inputs), compiled(0.1, 0)(*inputs)
    assert float(smoothed.nll) == pytest.approx(float(plain.nll))
    assert float(plain.nll) == pytest.approx(float(plain.objective))

    def nll(*inputs: jax.Array) -> jax.Array:
        return smoothed_cross_entropy(*inputs, smoothing=0.1, chunk=0, dtype="float32").nll

    assert np.all(np.asarray(jax.jit(jax.grad(nll))(*inputs)) == 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_large_logits_do_not_overflow(dtype):
    hidden, *rest = example()
    sums, gradients = compiled(0.1, 6, dtype)(np.float32(1e4) * hidden, *rest)
    assert np.isfinite(sums.objective)
    assert all(np.isfinite(gradient).all() for gradient in gradients)


# --- number formats and memory ----------------------------------------------------------------


@pytest.mark.parametrize("chunk", [0, 6])
def test_bfloat16_is_close(chunk):
    exact, exact_gradients = compiled(0.1, chunk)(*example())
    close, close_gradients = compiled(0.1, chunk, "bfloat16")(*example())
    # bfloat16 has 8 significant bits.
    assert float(close.objective) == pytest.approx(float(exact.objective), rel=2e-2)
    assert float(close.nll) == pytest.approx(float(exact.nll), rel=2e-2)
    for got, wanted in zip(close_gradients, exact_gradients, strict=True):
        assert got.dtype == jnp.float32
        assert float(jnp.abs(got - wanted).max()) < 3e-2 * float(jnp.abs(wanted).max())
    assert float(close.objective) != float(exact.objective)


def gradient_of(chunk: int):
    """(hidden, table) -> gradients, at sizes where the logits outweigh all else."""
    labels, weights = np.zeros((8, 32), np.int32), np.ones((8, 32), np.float32)

    def objective(hidden: jax.Array, table: jax.Array) -> jax.Array:
        sums = smoothed_cross_entropy(
            hidden, table, labels, weights, smoothing=0.1, chunk=chunk, dtype="float32"
        )
        return sums.objective

    return jax.grad(objective, (0, 1))


LARGE = (np.zeros((8, 32, 4), np.float32), np.zeros((3000, 4), np.float32))
WHOLE_LOGITS = 8 * 32 * 3000


def test_chunks_bound_the_compiled_programs_memory():
    def temporary_bytes(chunk: int) -> int:
        compiled = jax.jit(gradient_of(chunk)).lower(*LARGE).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary_bytes(0) >= 4 * WHOLE_LOGITS
    assert temporary_bytes(32) < 4 * WHOLE_LOGITS / 2
