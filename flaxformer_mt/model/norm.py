"""Layer normalisation (Ba et al., 2016), in float32 whatever the products take."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from flaxformer_mt.model.initializers import declare


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last axis, in float32.

    The variance is the mean of squared deviations: E[x^2] - E[x]^2 cancels where the mean is large.
    """

    epsilon: float

    @nn.compact
    def __call__(
        self, x: Float[Array, "rows length d_model"]
    ) -> Float[Array, "rows length d_model"]:
        d_model = (x.shape[-1],)
        scale = declare(self, "scale", nn.initializers.ones, ("embed",), d_model)
        bias = declare(self, "bias", nn.initializers.zeros, ("embed",), d_model)

        x = x.astype(jnp.float32)
        deviation = x - x.mean(axis=-1, keepdims=True)
        variance = jnp.square(deviation).mean(axis=-1, keepdims=True)
        normalised = deviation * jax.lax.rsqrt(variance + self.epsilon)
        return normalised * scale[None, None] + bias[None, None]
