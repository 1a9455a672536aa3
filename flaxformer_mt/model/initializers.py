"""Declares parameters and their initial values: Glorot uniform, N(0, 1/d_model)."""

import math
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

Initializer = nn.initializers.Initializer


def declare(
    module: nn.Module,
    name: str,
    init: Initializer,
    axes: tuple[str | None, ...],
    shape: tuple[int, ...],
) -> Array:
    """A float32 parameter of `module` whose axes carry logical names for the mesh."""
    boxed = nn.with_logical_partitioning(init, axes)
    return cast(Array, module.param(name, boxed, shape, jnp.float32))


def glorot_flattened(input_axes: int, *, gain: float = 1.0) -> Initializer:
    """Glorot uniform of a kernel as the matrix it stands for, times `gain`.

    The first `input_axes` axes are its rows and the rest its columns: d x (h * d_k) for the
    attention projections. On the axes as they are, the fans of a three-axis kernel come out wrong.
    """

    def init(key: Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:
        fan_in, fan_out = math.prod(shape[:input_axes]), math.prod(shape[input_axes:])
        bound = gain * math.sqrt(6 / (fan_in + fan_out))
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def embedding_normal(d_model: int) -> Initializer:
    """N(0, d_model^-0.5): times sqrt(d_model) at the input, unit variance; logits of order 1."""
    return jax.nn.initializers.normal(d_model**-0.5)
