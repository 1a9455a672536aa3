"""A smoothed loss's settings, and what both ways to compute it share."""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

Scalar = Float[Array, ""]

# Below float32, logits count as at most this far above the label's, so that the sum of a
# vocabulary's exponents stays finite in float32. A token's loss is exact while it is less; after
# that, it is reported as about this much.
MOST_NATS = 75.0

product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)


def smoothing_constant(smoothing: float, vocab_size: int) -> float:
    """Entropy (nats) of the smoothed target: even a perfect model's loss.

    The label has mass 1 - smoothing; the rest is spread evenly over the other types (tensor2tensor;
    the paper's section 5.4 doesn't say).
    """
    if smoothing == 0:
        return 0.0
    other = smoothing / (vocab_size - 1)
    return -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(other)


@dataclasses.dataclass(frozen=True)
class LossForm:
    """The static settings of a loss; see `smoothed_cross_entropy`."""

    smoothing: float
    chunk: int
    dtype: str
    types: int
    activation_dtype: str = "float32"

    @property
    def other_mass(self) -> float:
        """Probability of each type but the label in the smoothed target."""
        return self.smoothing / (self.types - 1)

    @property
    def label_excess(self) -> float:
        """How much more probable the label is there than every other type."""
        return 1 - self.smoothing - self.other_mass


class Softmax(NamedTuple):
    """The softmax matrix as the chunks use it."""

    table: Array  # [vocab, d_model], in the form's dtype; zeros in rows that stand for no type
    bias: Array | None  # [vocab]
    real: Array | None  # [vocab], rows that stand for a type; None if all do
    table_sum: Array  # [d_model], float32: the sum of these rows


def softmax_of(form: LossForm, table: Array, bias: Array | None) -> Softmax:
    reduced = table.astype(form.dtype)
    real = None if form.types == len(table) else jnp.arange(len(table)) < form.types
    counted = reduced if real is None else jnp.where(real[:, None], reduced, 0)
    return Softmax(counted, bias, real, counted.astype(jnp.float32).sum(0))


def of_types(softmax: Softmax, x: Array) -> Array:
    """`x`, [vocab or 1, width], in the rows of the table that stand for a type, else zeros."""
    return x if softmax.real is None else jnp.where(softmax.real[:, None], x, 0)


def label_and_sum(softmax: Softmax, hidden: Array, labels: Array) -> tuple[Array, Array]:
    """The label's logit and the sum of all types', [rows, length] each.

    Both are products of d_model terms, not passes over vocab.
    """
    label_logit = product("rld,rld->rl", hidden, jnp.take(softmax.table, labels, axis=0))
    logit_sum = product("rld,d->rl", hidden, softmax.table_sum)
    bias, real = softmax.bias, softmax.real
    if bias is not None:
        label_logit = label_logit + jnp.take(bias, labels)
        logit_sum = logit_sum + (bias if real is None else jnp.where(real, bias, 0)).sum()
    return label_logit, logit_sum


def objective_and_nll(
    form: LossForm, log_z: Array, label_logit: Array, logit_sum: Array, weights: Array
) -> tuple[Scalar, Scalar]:
    """Sums over positions, in nats, of these terms of each, [rows, length]."""
    token_nll = log_z - label_logit
    cross_entropy = log_z - form.label_excess * label_logit - form.other_mass * logit_sum
    if form.dtype != "float32":
        # The smoothed part sums differences of logits, too. Uncapped, it would lower a diverged
        # model's loss far below zero. An infinite one stays, so that its step is skipped.
        least = token_nll - form.smoothing * MOST_NATS
        capped = jnp.maximum(cross_entropy, least)
        cross_entropy = jnp.where(jnp.isneginf(cross_entropy), cross_entropy, capped)

    lowest = smoothing_constant(form.smoothing, form.types)
    objective = jnp.sum(weights * (cross_entropy - lowest))
    nll = jnp.sum(weights * token_nll)
    return objective, nll
