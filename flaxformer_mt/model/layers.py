"""One encoder layer and one decoder layer (paper, section 3.1), and their parts."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.attention import Hidden, KeysValues, Mask, MultiHeadAttention, Newest, Seen
from flaxformer_mt.model.dropout import Dropout, DropoutKey
from flaxformer_mt.model.kernels import declare, glorot_flattened, product, with_bias

ACTIVATIONS = {"relu": jax.nn.relu, "silu": jax.nn.silu}


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last axis, in float32.

    Ba et al. (2016). A float32 model's variance is the mean of squared deviations: E[x^2] - E[x]^2
    cancels where the mean is large.
    """

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Hidden) -> Hidden:
        d_model = (x.shape[-1],)
        scale = declare(self, "scale", nn.initializers.ones, ("embed",), d_model)
        bias = declare(self, "bias", nn.initializers.zeros, ("embed",), d_model)

        x, epsilon = x.astype(jnp.float32), self.config.norm_epsilon
        exact = self.config.dtype == "float32"
        x = _normalised(x, epsilon)[0] if exact else _normalised_in_one_pass(x, epsilon)
        return (x * scale[None, None] + bias[None, None]).astype(self.config.kept_dtype)


def _normalised(x: Array, epsilon: float) -> tuple[Array, Array]:
    """(x - mean) / sqrt(variance + epsilon), and its factor 1 / sqrt(variance + epsilon)."""
    deviation = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.square(deviation).mean(axis=-1, keepdims=True)
    factor = jax.lax.rsqrt(variance + epsilon)
    return deviation * factor, factor


# Where the next product rounds to fewer bits, one pass gives both moments, E[x] and E[x^2]: a TPU
# fuses it with the product that makes x. The variance keeps float32's 24 bits less twice those by
# which the mean exceeds the deviation: a factor of 30 leaves 14, and bfloat16 has 8.
@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _normalised_in_one_pass(x: Array, epsilon: float) -> Array:
    return _normalised_forward(x, epsilon)[0]


def _normalised_forward(x: Array, epsilon: float) -> tuple[Array, tuple[Array, Array]]:
    mean = x.mean(axis=-1, keepdims=True)
    variance = jnp.square(x).mean(axis=-1, keepdims=True) - jnp.square(mean)
    factor = jax.lax.rsqrt(jnp.maximum(variance, 0) + epsilon)
    normalised = (x - mean) * factor
    return normalised, (normalised, factor)


def _normalised_backward(
    epsilon: float, saved: tuple[Array, Array], gradient: Array
) -> tuple[Array]:
    normalised, factor = saved
    along = (gradient * normalised).mean(axis=-1, keepdims=True)
    return (factor * (gradient - gradient.mean(axis=-1, keepdims=True) - normalised * along),)


_normalised_in_one_pass.defvjp(_normalised_forward, _normalised_backward)


def reduced_relu(x: Float[Array, "..."], dtype: str) -> Float[Array, "..."]:
    """max(0, x) in `dtype`; its gradient has the type of `x`."""
    return _reduced_relu(x, dtype, str(x.dtype))


# The gradient keeps the result as the next product takes it: its sign tells where x was positive.
@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _reduced_relu(x: Float[Array, "..."], dtype: str, given: str) -> Float[Array, "..."]:
    return jax.nn.relu(x).astype(dtype)


_reduced_relu.defvjp(
    lambda x, dtype, given: (_reduced_relu(x, dtype, given),) * 2,
    lambda dtype, given, result, gradient: (jnp.where(result > 0, gradient, 0).astype(given),),
)


class FeedForward(nn.Module):
    """max(0, x W_in + b_in) W_out + b_out (paper, section 3.3), or with another activation."""

    config: ModelConfig

    @nn.compact
    def __call__(self, x: Hidden, *, dropout_key: DropoutKey) -> Hidden:
        d_model = self.config.d_model
        d_ff = self.config.d_ff
        dtype = self.config.dtype
        kernel, bias = glorot_flattened(1), nn.initializers.zeros
        w_in = declare(self, "w_in", kernel, ("embed", "mlp"), (d_model, d_ff))
        b_in = declare(self, "b_in", bias, ("mlp",), (d_ff,))
        w_out = declare(self, "w_out", kernel, ("mlp", "embed"), (d_ff, d_model))
        b_out = declare(self, "b_out", bias, ("embed",), (d_model,))

        kept = self.config.kept_dtype
        hidden = with_bias(product("bld,df->blf", x, w_in, dtype), b_in)
        if self.config.activation == "relu" and dtype != "float32":
            hidden = reduced_relu(hidden, dtype)
        else:
            hidden = ACTIVATIONS[self.config.activation](hidden).astype(kept)
        hidden = nn.with_logical_constraint(hidden, ("batch", "length", "mlp"))
        hidden = Dropout(self.config.ffn_dropout)(hidden, dropout_key=dropout_key)
        return with_bias(product("blf,fd->bld", hidden, w_out, dtype), b_out).astype(kept)


class Residual(nn.Module):
    """The residual sum, dropout and layer normalisation around a sub-layer.

    `norm` "post": LayerNorm(x + Dropout(Sublayer(x))), the paper's; "pre": x +
    Dropout(Sublayer(LayerNorm(x))).
    """

    config: ModelConfig

    def setup(self) -> None:
        self.norm = LayerNorm(self.config)
        self.dropout = Dropout(self.config.dropout)

    def enter(self, x: Hidden) -> Hidden:
        return self.norm(x) if self.config.norm == "pre" else x

    def leave(self, x: Hidden, sublayer: Hidden, *, dropout_key: DropoutKey) -> Hidden:
        """`x` joined with the sub-layer's output."""
        x = (x + self.dropout(sublayer, dropout_key=dropout_key)).astype(self.config.stream_dtype)
        x = nn.with_logical_constraint(x, ("batch", "length", "act_embed"))
        return self.norm(x) if self.config.norm == "post" else x


class EncoderLayer(nn.Module):
    config: ModelConfig

    def setup(self) -> None:
        self.self_attention = MultiHeadAttention(self.config)
        self.self_attention_residual = Residual(self.config)
        self.feed_forward = FeedForward(self.config)
        self.feed_forward_residual = Residual(self.config)

    def __call__(self, x: Hidden, mask: Mask, *, dropout_key: DropoutKey) -> Hidden:
        around = self.self_attention_residual
        inner = around.enter(x)
        inner = self.self_attention(inner, inner, mask, dropout_key=dropout_key)
        x = around.leave(x, inner, dropout_key=dropout_key)

        around = self.feed_forward_residual
        inner = self.feed_forward(around.enter(x), dropout_key=dropout_key)
        return around.leave(x, inner, dropout_key=dropout_key)


class DecoderLayer(nn.Module):
    config: ModelConfig

    def setup(self) -> None:
        self.self_attention = MultiHeadAttention(self.config)
        self.self_attention_residual = Residual(self.config)
        self.cross_attention = MultiHeadAttention(self.config)
        self.cross_attention_residual = Residual(self.config)
        self.feed_forward = FeedForward(self.config)
        self.feed_forward_residual = Residual(self.config)

    def __call__(
        self,
        x: Hidden,
        encoded: Hidden,
        self_mask: Mask,
        cross_mask: Mask,
        *,
        dropout_key: DropoutKey,
    ) -> Hidden:
        around = self.self_attention_residual
        inner = around.enter(x)
        inner = self.self_attention(inner, inner, self_mask, dropout_key=dropout_key)
        x = around.leave(x, inner, dropout_key=dropout_key)

        around = self.cross_attention_residual
        inner = self.cross_attention(around.enter(x), encoded, cross_mask, dropout_key=dropout_key)
        x = around.leave(x, inner, dropout_key=dropout_key)
        return self._feed_forward(x, dropout_key=dropout_key)

    def cross_keys_values(self, encoded: Hidden) -> KeysValues:
        """The source's keys and values as a cache holds them, computed once per sentence."""
        return self.cross_attention.for_cache(encoded)

    def decode_step(
        self,
        x: Newest,
        index: Int[Array, ""],
        past: KeysValues,
        source: KeysValues,
        visible: Seen,
        src_mask: Seen,
    ) -> tuple[Newest, KeysValues, Float[Array, "rows heads beams src_length"]]:
        """The layer at position `index` of every beam, `past` with that position added, and each
        beam's attention to the source.

        `past` and `source` are the layer's parts of a cache (`transformer.Cache`). A row's
        beams are queries over the same keys: those of the source, and those of all slots, among
        which `visible` marks a beam's own. Nothing is copied for them.
        """
        around = self.self_attention_residual
        inner = around.enter(x)
        past = self.self_attention.extended(past, inner, index)
        inner, _ = self.self_attention.attend_cached(inner, past, visible)
        x = around.leave(x, inner, dropout_key=None)

        around = self.cross_attention_residual
        inner, weights = self.cross_attention.attend_cached(around.enter(x), source, src_mask)
        x = around.leave(x, inner, dropout_key=None)
        return self._feed_forward(x, dropout_key=None), past, weights

    def _feed_forward(self, x: Hidden, *, dropout_key: DropoutKey) -> Hidden:
        around = self.feed_forward_residual
        inner = self.feed_forward(around.enter(x), dropout_key=dropout_key)
        return around.leave(x, inner, dropout_key=dropout_key)
