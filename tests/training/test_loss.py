"""The fused loss against a float64 reference, its gradient, and what it never holds in memory."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.training.loss import LossSums, slice_width, smoothed_cross_entropy
from flaxformer_mt.training.loss_form import smoothing_constant

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
    bias: np.ndarray | None,
    *,
    smoothing: float,
    types: int,
) -> tuple[float, float, list[np.ndarray]]:
    """Objective, negative log-likelihood and gradients in float64, straight from definitions.

    The objective is the Kullback-Leibler divergence of the model from the smoothed target: the
    cross-entropy above the lowest that any model can have. Its gradient in the logits is the
    model's distribution less the target.
    """
    rows = table[:types].astype(np.float64)
    logits = hidden.astype(np.float64) @ rows.T + (0 if bias is None else bias[:types])
    log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    one_hot = np.eye(types)[labels]
    target = one_hot * (1 - smoothing) + (1 - one_hot) * smoothing / (types - 1)
    log_target = np.log(np.where(target > 0, target, 1.0))
    divergence = (target * (log_target - log_probs)).sum(-1)
    nll = -(one_hot * log_probs).sum(-1)
    d_logits = weights[..., None] * (np.exp(log_probs) - target)
    d_table = np.zeros(table.shape)
    d_table[:types] = np.einsum("rlv,rld->vd", d_logits, hidden)
    d_bias = np.zeros(len(table))
    d_bias[:types] = d_logits.sum((0, 1))
    gradients = [d_logits @ rows, d_table, *([] if bias is None else [d_bias])]
    return float((weights * divergence).sum()), float((weights * nll).sum()), gradients


@functools.cache
def compiled(
    smoothing: float, chunk: int, dtype: str = "float32", types: int = VOCAB
) -> Callable[..., Any]:
    """(hidden, table, labels, weights, bias) -> (LossSums, gradients of hidden, table and bias).

    The gradients are doubled: as the division by tokens, a factor comes behind the loss.
    """
    form = {"smoothing": smoothing, "chunk": chunk, "dtype": dtype, "types": types}

    def objective(*inputs: Any) -> tuple[jax.Array, LossSums]:
        *arrays, bias = inputs
        sums = smoothed_cross_entropy(*arrays, **form, bias=bias)
        return 2 * sums.objective, sums

    gradient = jax.jit(jax.grad(objective, (0, 1, 4), has_aux=True))
    return lambda *arrays, bias=None: gradient(*arrays, bias)[::-1]


@settings(deadline=None)
@given(rows=st.integers(1, 300), length=st.integers(1, 600), chunk=st.integers(0, 9000))
def test_slices_are_even(rows: int, length: int, chunk: int) -> None:
    """No more positions at a time than were asked for, in as few slices, and hardly any padding."""
    width = slice_width(rows, length, chunk)
    most = length if chunk == 0 else max(1, chunk // rows)
    count = math.ceil(length / most)
    assert 1 <= width <= most and count * width - length < count


BIAS = np.float32(3 * np.random.default_rng(1).standard_normal(VOCAB))


@pytest.mark.parametrize(
    ("chunk", "smoothing", "types", "bias"),
    [
        *((chunk, smoothing, VOCAB, None) for chunk in CHUNKS for smoothing in (0.0, 0.1)),
        # With rows that stand for no type and without.
        *((chunk, 0.1, types, BIAS) for chunk in (0, 4) for types in (7, VOCAB)),
    ],
)
def test_value_and_gradients_equal_the_reference(chunk, smoothing, types, bias):
    hidden, table, labels, weights = example()
    inputs = hidden, table, labels % types, weights
    sums, gradients = compiled(smoothing, chunk, types=types)(*inputs, bias=bias)
    objective, nll, reference_gradients = reference(*inputs, bias, smoothing=smoothing, types=types)
    assert float(sums.objective) == pytest.approx(objective, rel=1e-6)
    assert float(sums.nll) == pytest.approx(nll, rel=1e-6)
    assert float(sums.weight) == 7 + 4 + 1
    for leaf in jax.tree.leaves(sums):
        assert (leaf.dtype, leaf.shape) == (jnp.float32, ())
    for got, expected in zip(jax.tree.leaves(gradients), reference_gradients, strict=True):
        np.testing.assert_allclose(got, 2 * expected, atol=1e-5)


@pytest.mark.parametrize("chunk", [0, 6])
def test_sums_without_a_gradient_are_the_same(chunk):
    """Validation takes the pass that leaves the gradient out."""
    inputs = example()
    plain = functools.partial(smoothed_cross_entropy, smoothing=0.1, chunk=chunk, dtype="float32")
    got, (with_gradient, _) = jax.jit(plain)(*inputs), compiled(0.1, chunk)(*inputs)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(with_gradient), strict=True):
        assert float(a) == pytest.approx(float(b), rel=1e-6)


def test_padding_has_no_gradient_and_no_say():
    hidden, table, labels, weights = example()
    sums, (d_hidden, *_) = compiled(0.1, 6)(hidden, table, labels, weights)
    assert np.all(np.asarray(d_hidden)[weights == 0] == 0)
    assert np.all(np.asarray(d_hidden)[weights > 0] != 0)

    other_labels = np.where(weights > 0, labels, (labels + 1) % VOCAB)
    other_hidden = np.where(weights[..., None] > 0, hidden, 100.0).astype(np.float32)
    other_sums, _ = compiled(0.1, 6)(other_hidden, table, other_labels, weights)
    assert float(sums.objective) == float(other_sums.objective)


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
    hidden, *inputs = example()
    sums, gradients = compiled(0.1, 6, dtype)(np.float32(1e4) * hidden, *inputs)
    assert np.isfinite(sums.objective)
    assert all(np.isfinite(gradient).all() for gradient in gradients[:2])


@pytest.mark.parametrize("chunk", [0, 6])
def test_bfloat16_is_close(chunk):
    exact, exact_gradients = compiled(0.1, chunk)(*example())
    close, close_gradients = compiled(0.1, chunk, "bfloat16")(*example())
    # bfloat16 has 8 significant bits.
    assert float(close.objective) == pytest.approx(float(exact.objective), rel=2e-2)
    assert float(close.nll) == pytest.approx(float(exact.nll), rel=2e-2)
    for got, exact_gradient in zip(close_gradients[:2], exact_gradients[:2], strict=True):
        assert got.dtype == jnp.float32
        assert float(jnp.abs(got - exact_gradient).max()) < 3e-2 * float(
            jnp.abs(exact_gradient).max()
        )
    assert float(close.objective) != float(exact.objective)


@pytest.mark.parametrize("chunk", [0, 6])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_a_diverged_model_reports_a_high_loss_in_bfloat16(chunk, smoothing):
    """Each token at the cap counts about 75 nats, less what smoothing can take off: never gain."""
    hidden, table, labels, weights = example()
    hidden = 1000 * hidden
    labels = (hidden @ table.T).argmin(-1).astype(np.int32)
    sums, _ = compiled(smoothing, chunk, "bfloat16")(hidden, table, labels, weights)
    true, _, _ = reference(hidden, table, labels, weights, None, smoothing=smoothing, types=VOCAB)
    tokens = float(sums.weight)
    assert true / tokens > 1000

    # All types but the label's may be at the cap; the smoothed target's own entropy is subtracted.
    lowest = smoothing_constant(smoothing, VOCAB)
    assert (1 - smoothing) * 75 - lowest <= float(sums.objective) / tokens < true / tokens
    assert 75 <= float(sums.nll) / tokens < 75 + math.log(VOCAB)


def test_an_infinite_logit_gives_an_infinite_loss_in_bfloat16():
    """A cap on it would hide from training that the step must be skipped."""
    hidden, table, labels, weights = example()
    bias = np.zeros(VOCAB, np.float32)
    bias[(labels[0, 0] + 1) % VOCAB] = np.inf
    sums, _ = compiled(0.1, 0, "bfloat16")(hidden, table, labels, weights, bias=bias)
    assert not np.isfinite(sums.objective)


def test_the_cap_changes_nothing_below_75_nats():
    """Losses of up to 30 nats a token."""
    hidden, table, labels, weights = example()
    hidden = np.float32(4) * hidden
    close, _ = compiled(0.1, 0, "bfloat16")(hidden, table, labels, weights)
    exact, _ = compiled(0.1, 0)(hidden, table, labels, weights)
    assert float(close.objective) == pytest.approx(float(exact.objective), rel=2e-2)


def test_chunks_bound_the_compiled_programs_memory():
    """At sizes where the logits outweigh all else."""
    shapes = (((8, 32, 4), "f4"), ((3000, 4), "f4"), ((8, 32), "i4"), ((8, 32), "f4"))
    inputs = [jax.ShapeDtypeStruct(*shape_and_dtype) for shape_and_dtype in shapes]

    def temporary_bytes(chunk: int) -> int:
        form = {"smoothing": 0.1, "chunk": chunk, "dtype": "float32"}
        objective = lambda *arrays: smoothed_cross_entropy(*arrays, **form).objective  # noqa: E731
        compiled = jax.jit(jax.grad(objective, (0, 1))).lower(*inputs).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    whole_logits = 4 * 8 * 32 * 3000
    assert temporary_bytes(0) >= whole_logits
    assert temporary_bytes(32) < whole_logits / 2
