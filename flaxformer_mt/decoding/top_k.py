"""The largest entries of rows, and entries by their places: what a search and its masks share."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Logits = Float[Array, "rows beams vocab"]
LogProbs = Float[Array, "rows beams"]
Values = Float[Array, "rows chosen"]
Places = Int[Array, "rows chosen"]


class Candidates(NamedTuple):
    """One-token continuations of each row's hypotheses."""

    log_probs: Values
    beam: Places  # which hypothesis each continues
    token: Places


def take(x: Array, index: Places) -> Array:
    """x[row, index[row]]: the chosen entries of axis 1."""
    index = index.reshape(index.shape + (1,) * (x.ndim - 2))
    return jnp.take_along_axis(x, index, axis=1, mode="promise_in_bounds")


def largest(values: Float[Array, "rows of"], count: int) -> tuple[Values, Places]:
    """`lax.top_k`. On a TPU it takes passes, because the compiler gives no cost for `top_k`."""
    return jax.lax.platform_dependent(
        values,
        tpu=functools.partial(by_passes, count=count),
        default=lambda values: tuple(jax.lax.top_k(values, count)),
    )


def by_passes(values: Float[Array, "rows of"], *, count: int) -> tuple[Values, Places]:
    """`lax.top_k`, one maximum after another."""
    # Maxima that are taken sink below all others.
    left = jnp.maximum(values, jnp.finfo(values.dtype).min)
    places = []
    for _ in range(count):
        places.append(jnp.argmax(left, axis=1, keepdims=True))
        left = jnp.where(jnp.arange(left.shape[1])[None] == places[-1], -jnp.inf, left)
    index = jnp.concatenate(places, axis=1)
    return take(values, index), index
