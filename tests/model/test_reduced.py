"""What the model writes out for products of fewer bits, against float64 and what JAX derives.

Of the products themselves: which numbers are rounded, forward and backward.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.model import attention as attentions, layers
from flaxformer_mt.model.kernels import product
from flaxformer_mt.training.loss import smoothed_cross_entropy
from tests.model.examples import jit

ROWS, LENGTH, HEADS, D_K, D_MODEL, VOCAB = 4, 24, 4, 16, 64, 500
SEGMENTS = np.repeat([[1] * 10 + [2] * 11 + [0] * 3], ROWS, axis=0).astype(np.int32)
MASK = np.asarray(attentions.attention_mask(SEGMENTS, SEGMENTS, causal=True))
LABELS = np.random.default_rng(5).integers(0, VOCAB, (ROWS, LENGTH)).astype(np.int32)
COUNTS = (SEGMENTS > 0).astype(np.float32)


def attention_derived(q, k, v, dtype):
    return attentions.weighted(attentions.attention_weights(q, k, MASK, dtype), v, dtype)


def feed_forward(x, w_in, w_out, dtype, activate):
    hidden = activate(product("bld,df->blf", x, w_in, dtype))
    return product("blf,fd->bld", hidden, w_out, dtype)


def loss(hidden, table, dtype):
    sums = smoothed_cross_entropy(
        hidden, table, LABELS, COUNTS, smoothing=0.1, chunk=0, dtype=dtype
    )
    return sums.objective


def loss_derived(hidden, table, dtype):
    log_probs = jax.nn.log_softmax(product("bld,vd->blv", hidden, table, dtype))
    is_label = LABELS[..., None] == np.arange(VOCAB)
    target = jnp.where(is_label, 0.9, 0.1 / (VOCAB - 1))
    return -(target * log_probs * COUNTS[..., None]).sum()


HEADED = (ROWS, LENGTH, HEADS, D_K)
WIDE = (ROWS, LENGTH, D_MODEL)
# ours, the plain form, the arguments' shapes, and how large they are
PARTS: dict[str, tuple[Callable, Callable, list[tuple[int, ...]], float]] = {
    "attention": (
        lambda q, k, v, dtype: attentions.attention(q, k, v, MASK, dtype),
        attention_derived,
        [HEADED] * 3,
        0.7,
    ),
    "feed-forward": (
        lambda *x: feed_forward(*x, functools.partial(layers.reduced_relu, dtype=x[-1])),
        lambda *x: feed_forward(*x, jax.nn.relu),
        [WIDE, (D_MODEL, 4 * D_MODEL), (4 * D_MODEL, D_MODEL)],
        0.5,
    ),
    "layer norm": (
        lambda x, dtype: layers._normalised_in_one_pass(x, 1e-6),
        lambda x, dtype: layers._normalised(x, 1e-6)[0],
        [WIDE],
        3.0,
    ),
    "loss": (loss, loss_derived, [WIDE, (VOCAB, D_MODEL)], 0.4),
}


@pytest.mark.parametrize("part", PARTS)
def test_gradients_are_as_near_to_float64_as_those_of_the_plain_form(part):
    """By at most a twentieth further, in the root of the mean square over each argument."""
    ours, plain, shapes, scale = PARTS[part]
    random = np.random.default_rng(0)
    values = [np.float32(scale * random.standard_normal(shape)) for shape in shapes]

    def gradients(form, dtype, values):
        def projected(*x):  # its gradient is that of a result with this gradient
            result = form(*x, dtype)
            back = np.random.default_rng(1).standard_normal(result.shape) if result.ndim else 1.0
            return (result * jnp.asarray(back, result.dtype)).sum()

        every = jit(jax.grad(projected, tuple(range(len(values)))))(*values)
        return [np.asarray(x, np.float64) for x in every]

    with jax.enable_x64(True):
        exact = gradients(plain, "float64", [np.float64(x) for x in values])
    by_hand, derived = (gradients(form, "bfloat16", values) for form in (ours, plain))
    for a, b, c in zip(exact, by_hand, derived, strict=True):
        size = np.sqrt((a**2).mean())
        error, before = (np.sqrt(((x - a) ** 2).mean()) / size for x in (b, c))
        print(f"{part}: error {error:.2e}, of the plain form {before:.2e}")
        assert error < 1.05 * before + 1e-6
        assert before < 0.06


def test_one_pass_over_values_far_from_0_keeps_more_digits_than_bfloat16_has():
    x = np.float32(30 + np.random.default_rng(0).standard_normal(WIDE))
    with jax.enable_x64(True):
        exact = np.asarray(layers._normalised(np.float64(x), 1e-6)[0])
    in_one_pass = jit(lambda x: layers._normalised_in_one_pass(x, 1e-6))
    assert np.abs(in_one_pass(x) - exact).max() < 2**-12
    # Here rounding may make the variance negative.
    assert np.abs(in_one_pass(np.full_like(x, 0.1))).max() < 0.01


SPECS = {
    "bld,dhk->blhk": ((2, 3, 8), (8, 2, 4)),
    "blhk,bqhk->bhql": ((2, 5, 2, 4), (2, 3, 2, 4)),
    "bhql,blhv->bqhv": ((2, 2, 3, 5), (2, 5, 2, 4)),
    "bqhv,hvd->bqd": ((2, 3, 2, 4), (2, 4, 8)),
    "brhk,brhlk->brhl": ((2, 3, 2, 4), (2, 3, 2, 6, 4)),
    "brhl,brhlv->brhv": ((2, 3, 2, 6), (2, 3, 2, 6, 4)),
    "bld,vd->blv": ((2, 3, 8), (9, 8)),
}


def operands(spec, seed=0):
    rng = np.random.default_rng(seed)
    return [np.float32(rng.standard_normal(shape)) for shape in SPECS[spec]]


def rounded(x):
    return np.asarray(jnp.asarray(x).astype(jnp.bfloat16), np.float64)


@pytest.mark.parametrize("spec", SPECS)
def test_bfloat16_rounds_operands_and_nothing_else(spec):
    a, b = operands(spec)
    result, pull = jit(lambda a, b: jax.vjp(lambda a, b: product(spec, a, b, "bfloat16"), a, b))(
        a, b
    )
    assert result.dtype == jnp.float32
    np.testing.assert_allclose(
        result, np.einsum(spec, rounded(a), rounded(b)), atol=1e-5, rtol=1e-5
    )
    gradient = np.float32(np.random.default_rng(1).standard_normal(result.shape))
    of_a, of_b = jit(pull)(gradient)
    inputs, output = spec.split("->")
    first, second = inputs.split(",")
    for product_of_rounded, expected in [
        (of_a, np.einsum(f"{output},{second}->{first}", rounded(gradient), rounded(b))),
        (of_b, np.einsum(f"{output},{first}->{second}", rounded(gradient), rounded(a))),
    ]:
        assert product_of_rounded.dtype == jnp.float32
        np.testing.assert_allclose(product_of_rounded, expected, atol=2e-5, rtol=1e-5)


def test_float32_casts_nothing():
    spec = "bld,dhk->blhk"
    summed = lambda a, b: product(spec, a, b, "float32").sum()  # noqa: E731
    jaxpr = jax.make_jaxpr(jax.grad(summed, argnums=(0, 1)))(*operands(spec))
    assert "convert_element_type" not in str(jaxpr)
