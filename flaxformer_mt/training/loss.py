"""Label-smoothed cross-entropy, fused with the softmax matrix to never hold all logits."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

Scalar = Float[Array, ""]

# Below float32, logits count as at most this far above the label's, so that the sum of a
# vocabulary's exponents stays finite in float32. A token's loss is exact while it is less; after
# that, it is reported as about this much.
_MOST_NATS = 75.0


@struct.dataclass
class LossSums:
    """Sums over the target positions that count; all float32 scalars.

    `objective` (nats) is the smoothed cross-entropy above its lowest possible value, which training
    minimises; `nll` (nats) is the plain negative log-likelihood, for perplexity.
    """

    objective: Scalar
    nll: Scalar
    tokens: Scalar


def smoothing_constant(smoothing: float, vocab_size: int) -> float:
    """Entropy (nats) of the smoothed target: even a perfect model's loss.

    The label has mass 1 - smoothing; the rest is spread evenly over the other types (tensor2tensor;
    the paper's section 5.4 doesn't say).
    """
    if smoothing == 0:
        return 0.0
    other = smoothing / (vocab_size - 1)
    return -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(other)


def smoothed_cross_entropy(
    hidden: Float[Array, "rows length d_model"],
    table: Float[Array, "vocab d_model"],
    labels: Int[Array, "rows length"],
    weights: Float[Array, "rows length"],
    *,
    smoothing: float,
    chunk: int,
    dtype: str,
    types: int | None = None,
    bias: Float[Array, " vocab"] | None = None,
) -> LossSums:
    """Loss of `hidden @ table.T + bias` against `labels`, summed over positions with weight 1.

    At most about `chunk` positions (0: all) have logits at any moment. A custom rule computes the
    gradient of `objective` in the same pass, without a second softmax; `nll` has no gradient.
    Matrix products and exponents take `dtype` operands and accumulate in float32. Rows of the table
    from `types` on (default: none) are padding: they get no probability, smoothing or gradient.
    """
    form = LossForm(smoothing, chunk, dtype, table.shape[0] if types is None else types)
    objective, nll = _fused(form, _Arrays(hidden, table, bias, labels, weights))
    return LossSums(objective=objective, nll=jax.lax.stop_gradient(nll), tokens=weights.sum())


@dataclasses.dataclass(frozen=True)
class LossForm:
    """What is static in a loss; see `smoothed_cross_entropy`."""

    smoothing: float
    chunk: int
    dtype: str
    types: int


class _Arrays(NamedTuple):
    """A loss's arguments, or their gradients: None for those that have none."""

    hidden: Array
    table: Array
    bias: Array | None
    labels: Any
    weights: Any


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _fused(form: LossForm, arrays: _Arrays) -> tuple[Scalar, Scalar]:
    sums, _ = _by_chunks(form, arrays, with_gradient=False)
    return sums


def _fused_forward(form: LossForm, arrays: _Arrays) -> tuple[tuple[Scalar, Scalar], Any]:
    sums, (d_hidden, d_table, d_bias) = _by_chunks(form, arrays, with_gradient=True)
    return sums, (d_hidden, d_table.astype(arrays.table.dtype), d_bias)


def _fused_backward(form: LossForm, gradients: Any, cotangents: Any) -> Any:
    d_hidden, d_table, d_bias = gradients
    scale, _ = cotangents
    d_bias = None if d_bias is None else scale * d_bias
    d_table = (scale * d_table).astype(d_table.dtype)
    return (_Arrays(scale * d_hidden, d_table, d_bias, None, None),)


_fused.defvjp(_fused_forward, _fused_backward)


def slice_width(rows: int, length: int, chunk: int) -> int:
    """How many positions of each row have logits at a time.

    All slices have the same width, since a last one of padding would cost as much as text.
    """
    if chunk == 0:
        return length
    count = -(-length // max(1, chunk // rows))
    return -(-length // count)


def _by_chunks(
    form: LossForm, arrays: _Arrays, *, with_gradient: bool
) -> tuple[tuple[Scalar, Scalar], Any]:
    hidden, table, bias, labels, weights = arrays
    # Cut along the length, not over flattened positions, since rows are split over devices.
    rows, length, d_model = hidden.shape
    width = slice_width(rows, length, form.chunk)
    count = -(-length // width)

    def cut(x: Array) -> Array:
        x = jnp.pad(x, [(0, 0), (0, count * width - length)] + [(0, 0)] * (x.ndim - 2))
        return jnp.moveaxis(x.reshape(rows, count, width, *x.shape[2:]), 1, 0)

    t = table.astype(form.dtype)
    # [vocab], of rows that stand for a type; None if all do.
    real = None if form.types == len(table) else jnp.arange(len(table)) < form.types
    table_sum = (t if real is None else jnp.where(real[:, None], t, 0)).astype(jnp.float32).sum(0)
    one = functools.partial(_one_chunk, form, (t, bias, table_sum, real), with_gradient)
    chunks = (cut(hidden), cut(labels), cut(weights))
    if count == 1:
        sums, gradients = one(*(x[0] for x in chunks))
        return sums, gradients

    def body(carry: Any, xs: Any) -> Any:
        (objective, nll), gradients = one(*xs)
        total_objective, total_nll, total = carry
        d_hidden, *of_all = gradients if with_gradient else (None,)
        total = jax.tree.map(jnp.add, total, tuple(of_all))
        return (total_objective + objective, total_nll + nll, total), d_hidden

    zero = jnp.zeros((), jnp.float32)
    of_all = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), (table, bias))
    start = (zero, zero, of_all if with_gradient else ())
    (objective, nll, of_all), d_hidden = jax.lax.scan(body, start, chunks)
    if not with_gradient:
        return (objective, nll), None
    d_hidden = jnp.moveaxis(d_hidden, 0, 1).reshape(rows, count * width, d_model)[:, :length]
    return (objective, nll), (d_hidden, *of_all)


def _one_chunk(
    form: LossForm,
    softmax: tuple[Array, Array | None, Array, Array | None],
    with_gradient: bool,
    hidden: Array,
    labels: Array,
    weights: Array,
) -> tuple[tuple[Scalar, Scalar], Any]:
    t, bias, table_sum, real = softmax
    vocab = t.shape[0]
    other = form.smoothing / (form.types - 1)
    extra = 1 - form.smoothing - other  # what the label has above every other type
    h = hidden.astype(form.dtype)
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)

    logits = product("rld,vd->rlv", h, t)
    if bias is not None:
        logits = logits + bias[None, None]
    if real is not None:
        logits = jnp.where(real[None, None], logits, -jnp.inf)
    # The label's logit and the sum over all types are products of d_model terms, not passes over
    # vocab.
    label_logit = product("rld,rld->rl", h, jnp.take(t, labels, axis=0))
    logit_sum = product("rld,d->rl", h, table_sum)
    if bias is not None:
        label_logit = label_logit + jnp.take(bias, labels)
        logit_sum = logit_sum + (bias if real is None else jnp.where(real, bias, 0)).sum()
    if form.dtype == "float32":
        relative_to = logits.max(axis=-1)
        exponent = jnp.exp(logits - relative_to[..., None])
    else:
        # Known before the large product, unlike the maximum, which is another pass over vocab.
        relative_to = label_logit
        exponent = jnp.exp(jnp.minimum(logits - label_logit[..., None], _MOST_NATS))
        exponent = exponent.astype(form.dtype)
    total = exponent.astype(jnp.float32).sum(axis=-1)
    log_z = relative_to + jnp.log(total)
    token_nll = log_z - label_logit
    cross_entropy = log_z - extra * label_logit - other * logit_sum
    if form.dtype != "float32":
        # The smoothed part sums differences of logits, too. Uncapped, it would lower a diverged
        # model's loss far below zero. An infinite one stays, so that its step is skipped.
        least = token_nll - form.smoothing * _MOST_NATS
        capped = jnp.maximum(cross_entropy, least)
        cross_entropy = jnp.where(jnp.isneginf(cross_entropy), cross_entropy, capped)
    lowest = smoothing_constant(form.smoothing, form.types)
    objective = jnp.sum(weights * (cross_entropy - lowest))
    nll = jnp.sum(weights * token_nll)
    if not with_gradient:
        return (objective, nll), None

    is_label = labels[..., None] == jnp.arange(vocab)[None, None]
    d_logits = exponent.astype(jnp.float32) * (weights / total)[..., None] - jnp.where(
        is_label, (weights * (extra + other))[..., None], (weights * other)[..., None]
    )
    if real is not None:
        d_logits = jnp.where(real[None, None], d_logits, 0)
    d_bias = None if bias is None else d_logits.sum(axis=(0, 1))
    d_logits = d_logits.astype(form.dtype)
    d_hidden = product("rlv,vd->rld", d_logits, t)
    d_table = product("rlv,rld->vd", d_logits, h)
    return (objective, nll), (d_hidden, d_table, d_bias)
