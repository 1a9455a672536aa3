"""Label-smoothed cross-entropy, fused with the softmax matrix to never hold all logits."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, Int

from flaxformer_mt.training.loss_by_products import one_chunk_by_products
from flaxformer_mt.training.loss_form import (
    MOST_NATS,
    LossForm,
    Scalar,
    Softmax,
    label_and_sum,
    objective_and_nll,
    of_types,
    product,
    softmax_of,
)


@struct.dataclass
class LossSums:
    """Sums over the target positions, by their weights; all float32 scalars.

    `objective` (nats) is the smoothed cross-entropy above its lowest possible value, which training
    minimises; `nll` (nats) is the plain negative log-likelihood, for perplexity.
    """

    objective: Scalar
    nll: Scalar
    weight: Scalar  # of all positions


def smoothed_cross_entropy(
    hidden: Float[Array, "rows length d_model"],
    table: Float[Array, "vocab d_model"],
    labels: Int[Array, "rows length"],
    weights: Float[Array, "rows length"],
    *,
    smoothing: float,
    chunk: int,
    dtype: str,
    activation_dtype: str = "float32",
    types: int | None = None,
    bias: Float[Array, " vocab"] | None = None,
) -> LossSums:
    """Loss of `hidden @ table.T + bias` against `labels`, times weights, summed.

    At most about `chunk` positions (0: all) have logits at any moment. A custom rule computes the
    gradient of `objective` in the same pass, without a second softmax; `nll` has no gradient.
    Matrix products and exponents take `dtype` operands and accumulate in float32. With
    `activation_dtype` bfloat16 the softmax is folded into the products. Rows of the table from
    `types` on (default: none) are padding: they get no probability, smoothing or gradient.
    """
    form = LossForm(
        smoothing, chunk, dtype, table.shape[0] if types is None else types, activation_dtype
    )
    objective, nll = _fused(form, _Arrays(hidden, table, bias, labels, weights))
    return LossSums(objective=objective, nll=jax.lax.stop_gradient(nll), weight=weights.sum())


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
    d_hidden = d_hidden.astype(arrays.hidden.dtype)
    return sums, (d_hidden, d_table.astype(arrays.table.dtype), d_bias)


def _fused_backward(form: LossForm, gradients: Any, cotangents: Any) -> Any:
    d_hidden, d_table, d_bias = gradients
    scale, _ = cotangents
    d_bias = None if d_bias is None else scale * d_bias
    d_table = (scale * d_table).astype(d_table.dtype)
    d_hidden = (scale * d_hidden).astype(d_hidden.dtype)
    return (_Arrays(d_hidden, d_table, d_bias, None, None),)


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
    """(objective, nll), and the gradients (hidden, table, bias) of the objective or None."""
    hidden, table, bias, labels, weights = arrays
    # Cut along the length, not over flattened positions, since rows are split over devices.
    rows, length, d_model = hidden.shape
    width = slice_width(rows, length, form.chunk)
    count = -(-length // width)
    softmax = softmax_of(form, table, bias)
    one_chunk = one_chunk_by_products if form.activation_dtype == "bfloat16" else _one_chunk
    chunk_loss = functools.partial(one_chunk, form, softmax, with_gradient)
    chunks = tuple(_cut(x, count, width) for x in (hidden, labels, weights))
    if count == 1:
        return chunk_loss(*(chunk[0] for chunk in chunks))

    sums, (d_hidden, *d_shared) = _summed(chunk_loss, chunks, (table, bias), with_gradient)
    if not with_gradient:
        return sums, None
    # [count, rows, width, d_model] -> [rows, count * width, d_model] -> [rows, length, d_model]
    d_hidden = jnp.moveaxis(d_hidden, 0, 1).reshape(rows, count * width, d_model)[:, :length]
    return sums, (d_hidden, *d_shared)


def _summed(
    chunk_loss: Callable[..., Any],
    chunks: tuple[Array, ...],
    shared: tuple[Array, Array | None],
    with_gradient: bool,
) -> tuple[tuple[Scalar, Scalar], tuple[Any, ...]]:
    """(objective, nll) and gradients of one chunk after the other.

    Gradients of the `shared` table and bias are sums, that of hidden states has the chunks first.
    """

    def add(totals: Any, chunk: Any) -> Any:
        (objective, nll), gradients = chunk_loss(*chunk)
        total_objective, total_nll, total_shared = totals
        d_hidden, *d_shared = gradients if with_gradient else (None,)
        total_shared = jax.tree.map(jnp.add, total_shared, tuple(d_shared))
        return (total_objective + objective, total_nll + nll, total_shared), d_hidden

    zero = jnp.zeros((), jnp.float32)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), shared)
    start = (zero, zero, zeros if with_gradient else ())
    (objective, nll, d_shared), d_hidden = jax.lax.scan(add, start, chunks)
    return (objective, nll), (d_hidden, *d_shared)


def _cut(x: Array, count: int, width: int) -> Array:
    """[rows, length, ...] -> [count, rows, width, ...], with zeros at the end."""
    rows, length = x.shape[:2]
    x = jnp.pad(x, [(0, 0), (0, count * width - length)] + [(0, 0)] * (x.ndim - 2))
    return jnp.moveaxis(x.reshape(rows, count, width, *x.shape[2:]), 1, 0)


def _one_chunk(
    form: LossForm,
    softmax: Softmax,
    with_gradient: bool,
    hidden: Array,
    labels: Array,
    weights: Array,
) -> tuple[tuple[Scalar, Scalar], Any]:
    """As `_by_chunks`, for all positions at once."""
    hidden = hidden.astype(form.dtype)
    logits = _logits(softmax, hidden)  # [rows, length, vocab]
    label_logit, logit_sum = label_and_sum(softmax, hidden, labels)  # [rows, length] each
    relative_to, exponents = _exponents(form, logits, label_logit)
    total = exponents.astype(jnp.float32).sum(axis=-1)  # [rows, length]
    log_z = relative_to + jnp.log(total)
    objective, nll = objective_and_nll(form, log_z, label_logit, logit_sum, weights)
    if not with_gradient:
        return (objective, nll), None

    d_logits = _logits_gradient(form, exponents, total, labels, weights)
    # Of rows that stand for no type the logits' gradient is wrong: their rows of the table are
    # zeros here, and their own gradient is left out below, where there is less to leave out.
    d_bias = None
    if softmax.bias is not None:
        d_bias = of_types(softmax, d_logits.sum(axis=(0, 1))[:, None])[:, 0]
    d_logits = d_logits.astype(form.dtype)
    d_hidden = product("rlv,vd->rld", d_logits, softmax.table)
    d_table = of_types(softmax, product("rlv,rld->vd", d_logits, hidden))
    return (objective, nll), (d_hidden, d_table, d_bias)


def _logits(softmax: Softmax, hidden: Array) -> Array:
    logits = product("rld,vd->rlv", hidden, softmax.table)
    if softmax.bias is not None:
        logits = logits + softmax.bias[None, None]
    if softmax.real is not None:
        logits = jnp.where(softmax.real[None, None], logits, -jnp.inf)
    return logits


def _exponents(form: LossForm, logits: Array, label_logit: Array) -> tuple[Array, Array]:
    """A logit of each position, [rows, length], and exp(logits - it), [rows, length, vocab]."""
    if form.dtype == "float32":
        highest = logits.max(axis=-1)
        return highest, jnp.exp(logits - highest[..., None])
    # The label's is known before the large product, unlike the highest, which is another pass over
    # vocab.
    exponents = jnp.exp(jnp.minimum(logits - label_logit[..., None], MOST_NATS))
    return label_logit, exponents.astype(form.dtype)


def _logits_gradient(
    form: LossForm, exponents: Array, total: Array, labels: Array, weights: Array
) -> Array:
    """The softmax's probabilities less the smoothed target's, weighted: [rows, length, vocab]."""
    vocab = exponents.shape[-1]
    is_label = labels[..., None] == jnp.arange(vocab)[None, None]
    probabilities = exponents.astype(jnp.float32) * (weights / total)[..., None]
    of_label = (weights * (form.label_excess + form.other_mass))[..., None]
    of_other = (weights * form.other_mass)[..., None]
    return probabilities - jnp.where(is_label, of_label, of_other)
