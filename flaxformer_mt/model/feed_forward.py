"""The position-wise feed-forward network (paper, section 3.3)."""

from __future__ import annotations

import flax.linen as nn
import jax
from jaxtyping import Array, Float

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.dropout import Dropout
from flaxformer_mt.model.initializers import declare, glorot_flattened
from flaxformer_mt.model.products import product

ACTIVATIONS = {"relu": jax.nn.relu, "silu": jax.nn.silu}


class FeedForward(nn.Module):
    """max(0, x W_in + b_in) W_out + b_out, or another activation in place of the maximum."""

    config: ModelConfig

    @nn.compact
    def __call__(
        self, x: Float[Array, "rows length d_model"], *, deterministic: bool
    ) -> Float[Array, "rows length d_model"]:
        d_model, d_ff, dtype = self.config.d_model, self.config.d_ff, self.config.dtype
        kernel, bias = glorot_flattened(1), nn.initializers.zeros
        w_in = declare(self, "w_in", kernel, ("embed", "mlp"), (d_model, d_ff))
        b_in = declare(self, "b_in", bias, ("mlp",), (d_ff,))
        w_out = declare(self, "w_out", kernel, ("mlp", "embed"), (d_ff, d_model))
        b_out = declare(self, "b_out", bias, ("embed",), (d_model,))

        activate = ACTIVATIONS[self.config.activation]
        hidden = activate(product("bld,df->blf", x, w_in, dtype) + b_in[None, None])
        hidden = nn.with_logical_constraint(hidden, ("batch", "length", "mlp"))
        hidden = Dropout(self.config.ffn_dropout)(hidden, deterministic=deterministic)
        return product("blf,fd->bld", hidden, w_out, dtype) + b_out[None, None]
