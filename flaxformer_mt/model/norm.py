"""Layer normalisation (Ba et al., 2016), in float32 whatever the products take."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale[None, None] + bias[None, None] over the last axis, in float32.

    The variance is the mean of squared deviations: E[x^2] - E[x]^2 cancels where the mean is large.
    """

    epsilon: float

    @nn.compact
    def __call__(self, x: Float[Array, "rows length d_model"]) -> Float[Array, "rows length d_model"]:
        shape = (x.shape[-1],)
        ones = nn.with_logical_partitioning(nn.initializers.ones, ("embed",))
        zeros = nn.with_logical_partitioning(nn.initializers.zeros, ("embed",))
        scale = self.param("scale", ones, shape, jnp.float32)
        bias = self.param("bias", zeros, shape, jnp.float32)

        x = x.astype(jnp.float32)
        deviation = x - x.mean(axis=-1, keepdims=True)
        variance = jnp.square(deviation).mean(axis=-1, keepdims=True)
        return deviation * jax.lax.rsqrt(variance + self.epsilon) * scale[None, None] + bias[None, None]
