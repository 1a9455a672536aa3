"""Initial values: Glorot uniform for kernels, N(0, 1/d_model) for embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

Initializer = Callable[..., Array]


def glorot_flattened(input_axes: int) -> Initializer:
    """Glorot uniform of a kernel as the matrix it stands for.

    The first `input_axes` axes are its rows and the rest its columns: d x (h * d_k) for the
    attention projections. On the axes as they are, the fans of a three-axis kernel come out wrong.
    """

    def init(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
        fan_in, fan_out = math.prod(shape[:input_axes]), math.prod(shape[input_axes:])
        bound = math.sqrt(6 / (fan_in + fan_out))
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def embedding_normal(d_model: int) -> Initializer:
    """N(0, d_model^-0.5): times sqrt(d_model) at the input, unit variance; logits of order 1."""
    return jax.nn.initializers.normal(d_model**-0.5)
