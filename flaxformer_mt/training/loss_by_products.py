"""Cross-entropy for devices that wait for memory: the softmax is folded into matrix products.

Of a position with hidden state h, weight w and label y, a table T of all types and a number a near
the label's logit (two bfloat16 numbers' sum), with the smoothed target's `excess` and `other`:

    E = exp(h T^T - a)                                  one product, for all types
    Z = sum of E;  log P(y) = h T[y] - a - log Z
    d_h = w (E T / Z - excess T[y] - other sum(T))      the second product
    d_T = E^T (w h / Z), less excess w h in row y and other w h in every row: the third

E is the only array of positions by types: the first product writes it, as bfloat16, and the others
read it. T and h get eight more columns, so that the first product subtracts a and adds the bias,
and the second one computes Z.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flaxformer_mt.training.loss_form import (
    MOST_NATS,
    LossForm,
    Scalar,
    Softmax,
    label_and_sum,
    objective_and_nll,
    of_types,
    product,
)

_COLUMNS = 8  # 16 bytes, to which rows of operands are aligned
_NEVER = -1e30  # the logit of rows that pad the table


def one_chunk_by_products(
    form: LossForm,
    softmax: Softmax,
    with_gradient: bool,
    hidden: Array,
    labels: Array,
    weights: Array,
) -> tuple[tuple[Scalar, Scalar], Any]:
    """(objective, nll), and the gradients (hidden, table, bias) of the objective or None."""
    hidden = hidden.astype(form.dtype)
    label_logit, logit_sum = label_and_sum(softmax, hidden, labels)  # [rows, length] each
    # The label's logit counts as the sum of these two, which the product can subtract: its E is 1.
    high, low = _in_two(label_logit, form.dtype)
    label_logit = high.astype(jnp.float32) + low.astype(jnp.float32)

    table = _with_columns(softmax, form.dtype)  # [vocab, d_model + 8]
    constant = jnp.ones_like(high)
    inputs = _joined(hidden, -high, -low, constant, constant)  # [rows, length, d_model + 8]
    logits = product("rld,vd->rlv", inputs, table)  # less the label's
    exponents = jnp.exp(jnp.minimum(logits, MOST_NATS)).astype(form.dtype)
    if not with_gradient:
        total = exponents.astype(jnp.float32).sum(axis=-1)  # [rows, length]
        log_z = label_logit + jnp.log(total)
        return objective_and_nll(form, log_z, label_logit, logit_sum, weights), None

    summed = product("rlv,vd->rld", exponents, table)  # [rows, length, d_model + 8]
    d_model = hidden.shape[-1]
    total = summed[..., d_model]  # the column of ones
    log_z = label_logit + jnp.log(total)
    sums = objective_and_nll(form, log_z, label_logit, logit_sum, weights)

    share = (weights / total)[..., None]  # w / Z, [rows, length, 1]
    excess = (form.label_excess * weights)[..., None]
    other = (form.other_mass * weights)[..., None]
    label_rows = jnp.take(softmax.table, labels, axis=0).astype(jnp.float32)
    d_hidden = share * summed[..., :d_model] - excess * label_rows
    d_hidden = d_hidden - other * softmax.table_sum[None, None]

    d_table = _table_gradient(form, softmax, exponents, hidden, labels, (share, excess, other))
    if softmax.bias is None:
        return sums, (d_hidden, d_table, None)
    ones = jnp.ones_like(hidden[..., :1])  # a bias is a column of the table for a constant input
    d_bias = _table_gradient(form, softmax, exponents, ones, labels, (share, excess, other))
    return sums, (d_hidden, d_table, d_bias[:, 0])


def _table_gradient(
    form: LossForm,
    softmax: Softmax,
    exponents: Array,
    hidden: Array,
    labels: Array,
    factors: tuple[Array, Array, Array],
) -> Array:
    """The gradient of the columns that multiply `hidden`: [vocab, width of hidden].

    The factors, [rows, length, 1], are w / Z, w excess and w other.
    """
    share, excess, other = factors
    inputs = hidden.astype(jnp.float32)
    rounded = (share * inputs).astype(form.dtype)
    gradient = product("rlv,rld->vd", exponents, rounded)
    gradient = gradient - of_types(softmax, (other * inputs).sum(axis=(0, 1))[None])
    # Where the model is sure of a label, p h and excess h nearly cancel. The product took p h
    # rounded to `dtype`, so what that lost is given back; its factor E is 1.
    rest = (share - excess) * inputs - rounded.astype(jnp.float32)
    return gradient.at[labels].add(rest)


def _with_columns(softmax: Softmax, dtype: str) -> Array:
    """The softmax matrix, two columns of ones, the bias as two columns, and four of zeros."""
    offset = jnp.zeros(len(softmax.table), jnp.float32) if softmax.bias is None else softmax.bias
    if softmax.real is not None:
        offset = jnp.where(softmax.real, offset, _NEVER)
    constant = jnp.ones_like(offset, dtype)
    return _joined(softmax.table, constant, constant, *_in_two(offset, dtype))


def _joined(matrix: Array, *columns: Array) -> Array:
    """[..., d_model] and columns [...] of its type, as [..., d_model + 8]."""
    more = jnp.stack(columns, axis=-1)
    padding = [(0, 0)] * (more.ndim - 1) + [(0, _COLUMNS - len(columns))]
    return jnp.concatenate([matrix, jnp.pad(more, padding)], axis=-1)


def _in_two(x: Array, dtype: str) -> tuple[Array, Array]:
    """Float32 numbers as sums of two in `dtype`: of bfloat16, together 16 of the 24 bits."""
    high = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return high.astype(dtype), (x - high).astype(dtype)
