"""The loss where a device waits for memory: its matrix products do the softmax's work, too.

With the hidden state h of a position, its label's logit a, and Z = sum of E over the types,

    E = exp(h T' - a)                              a product that also adds and subtracts
    nll = a + log Z - (the label's logit)
    d_h = w (E T / Z - excess T[label] - other sum of T)
    d_T = E' (w h / Z) - excess (w h of each label's positions) - other sum of (w h)

the only numbers for every position and type are E: written once by the first product, as bfloat16,
and read by the other two. T and h get eight more columns, by which the first product subtracts a
and adds the bias, and the second one sums E.
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
    # What the product subtracts is these two numbers' sum, whatever the label's logit is.
    whole, rest = _in_two(label_logit, form.dtype)
    reference = whole.astype(jnp.float32) + rest.astype(jnp.float32)

    table = _with_columns(softmax, form.dtype)  # [vocab, d_model + 8]
    one = jnp.ones_like(whole)
    logits = product("rld,vd->rlv", _joined(hidden, -whole, -rest, one, one), table)
    exponents = jnp.exp(jnp.minimum(logits, MOST_NATS)).astype(form.dtype)
    if not with_gradient:
        total = exponents.astype(jnp.float32).sum(axis=-1)  # [rows, length]
        log_z = reference + jnp.log(total)
        return objective_and_nll(form, log_z, label_logit, logit_sum, weights), None

    summed = product("rlv,vd->rld", exponents, table)  # [rows, length, d_model + 8]
    d_model = hidden.shape[-1]
    total = summed[..., d_model]  # the column of ones
    log_z = reference + jnp.log(total)
    sums = objective_and_nll(form, log_z, label_logit, logit_sum, weights)

    share = (weights / total)[..., None]  # w / Z, [rows, length, 1]
    excess = (form.label_excess * weights)[..., None]
    other = (form.other_mass * weights)[..., None]
    label_rows = jnp.take(softmax.table, labels, axis=0).astype(jnp.float32)
    d_hidden = share * summed[..., :d_model] - excess * label_rows
    d_hidden = d_hidden - other * softmax.table_sum[None, None]

    wide = hidden.astype(jnp.float32)
    d_table = product("rlv,rld->vd", exponents, (share * wide).astype(form.dtype))
    d_table = d_table - _of_types(softmax, (other * wide).sum(axis=(0, 1))[None])
    d_table = d_table.at[labels].add(-excess * wide)
    if softmax.bias is None:
        return sums, (d_hidden, d_table, None)

    d_bias = product("rlv,rl->v", exponents, share[..., 0].astype(form.dtype))
    d_bias = d_bias - _of_types(softmax, other.sum()[None, None])[:, 0]
    return sums, (d_hidden, d_table, d_bias.at[labels].add(-excess[..., 0]))


def _with_columns(softmax: Softmax, dtype: str) -> Array:
    """The softmax matrix with a column of ones, another, the bias in two, and four of zeros."""
    offset = jnp.zeros(len(softmax.table), jnp.float32) if softmax.bias is None else softmax.bias
    if softmax.real is not None:
        offset = jnp.where(softmax.real, offset, _NEVER)
    one = jnp.ones_like(offset, dtype)
    return _joined(softmax.table, one, one, *_in_two(offset, dtype))


def _joined(matrix: Array, *columns: Array) -> Array:
    """[..., d_model] and columns [...] of its type, as [..., d_model + 8]."""
    more = jnp.stack(columns, axis=-1)
    padding = [(0, 0)] * (more.ndim - 1) + [(0, _COLUMNS - len(columns))]
    return jnp.concatenate([matrix, jnp.pad(more, padding)], axis=-1)


def _in_two(x: Array, dtype: str) -> tuple[Array, Array]:
    """Float32 numbers as sums of two of fewer bits, which keep 16 of the 24 bits."""
    whole = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
    return whole.astype(dtype), (x - whole).astype(dtype)


def _of_types(softmax: Softmax, x: Array) -> Array:
    """[1, ...] for every row of the table that stands for a type: [vocab or 1, ...]."""
    return x if softmax.real is None else jnp.where(softmax.real[:, None], x, 0)
