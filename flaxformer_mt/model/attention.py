"""Multi-head scaled dot-product attention (paper, section 3.2), and who may attend to whom."""

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.dropout import Dropout, DropoutKey
from flaxformer_mt.model.kernels import (
    declare,
    einsum_float32,
    glorot_flattened,
    product,
    with_bias,
)

Hidden = Float[Array, "rows length d_model"]
Memory = Float[Array, "rows keys d_model"]  # positions to attend to
Mask = Bool[Array, "rows queries keys"]
Queries = Float[Array, "rows queries heads d_k"]
Keys = Float[Array, "rows keys heads d_k"]
Values = Float[Array, "rows keys heads d_v"]
Weights = Float[Array, "rows heads queries keys"]
Heads = Float[Array, "rows queries heads d_v"]
KeysValues = dict[str, Array]  # {"key", "value"} of one layer, as decoding keeps them
Newest = Float[Array, "rows beams d_model"]  # each beam's newest position
Seen = Bool[Array, "rows beams keys"]  # by each beam

MASKED = -1e9  # added to the scores of masked positions: exp() of it is exactly 0 in float32

# cuDNN's kernel works on 128 queries and keys at a time. Shorter rows leave most of that empty: on
# an H100 a layer's attention and its gradient took 0.9 to 1.0 ms in rows of 32, where our products
# took 0.7, but 0.7 to 0.9 in rows of 256, where ours took 1.3 to 1.5 (results/first_contact.json).
_CUDNN_TILE = 128
_CUDNN_MULTIPLE = 8

# Query, key and value projections start as parts of one d x 3d matrix with Glorot's bound, which is
# 1/sqrt(2) of the bound of each by itself. The paper doesn't say; fairseq does the same, and the
# early tensor2tensor too in self-attention. With the full bound, attention's mean over the sentence
# drowns the token it is added to in a post-LN stack: on Multi30k the encoder's outputs within a
# sentence became nearly one vector during warm-up and stayed so (validation perplexity after 300
# steps: 195, against 138 with this).
_INWARD_GAIN = 0.5**0.5


def attention_mask(
    query_segment_ids: Int[Array, "rows queries"],
    key_segment_ids: Int[Array, "rows keys"],
    *,
    causal: bool = False,
) -> Mask:
    """True where a query may attend to a key: same segment, not padding (segment 0), not later.

    `causal` compares indices in the row, which are in token order within a segment (paper, section
    3.2.3). A padding query's row is all False.
    """
    same_segment = query_segment_ids[:, :, None] == key_segment_ids[:, None, :]
    mask = same_segment & (key_segment_ids[:, None, :] != 0)
    if causal:
        queries = jnp.arange(query_segment_ids.shape[1])
        keys = jnp.arange(key_segment_ids.shape[1])
        mask &= (queries[:, None] >= keys[None, :])[None]
    return mask


def mask_bias(mask: Bool[Array, "..."]) -> Float[Array, "..."]:
    """The mask as a float32 term of the scores: 0 where allowed, -1e9 elsewhere.

    It is finite, so a row with nothing to attend to gets a finite average instead of NaN. Such rows
    are padding, which no real position reads.
    """
    return jnp.where(mask, jnp.float32(0), jnp.float32(MASKED))


def attention_weights(queries: Queries, keys: Keys, mask: Mask, dtype: str) -> Weights:
    """softmax(Q K^T) of equation 1 under the mask; Q is already divided by sqrt(d_k)."""
    # Keys first: otherwise their gradient is a product that XLA's CPU backend lacks in bfloat16
    # ("Unsupported element type for DotThunk").
    scores = product("blhk,bqhk->bhql", keys, queries, dtype)
    return jax.nn.softmax(scores + mask_bias(mask)[:, None], axis=-1)


def weighted(weights: Weights, values: Values, dtype: str) -> Heads:
    """Equation 1's product with V: each query's weighted mean of the values."""
    return product("bhql,blhv->bqhv", weights, values, dtype)


def attention(queries: Queries, keys: Keys, values: Values, mask: Mask, dtype: str) -> Heads:
    """Equation 1, without keeping the weights; Q is already divided by sqrt(d_k)."""
    if dtype == "float32":
        return weighted(attention_weights(queries, keys, mask, dtype), values, dtype)
    return _reduced_attention(queries, keys, values, mask_bias(mask)[:, None], dtype)


def cudnn_attention(queries: Queries, keys: Keys, values: Values, mask: Mask) -> Heads:
    """Equation 1, of queries not yet divided by sqrt(d_k), by NVIDIA's kernel.

    Scores never leave the chip.
    """
    attend = functools.partial(jax.nn.dot_product_attention, implementation="cudnn")
    return joined_attention(attend, queries, keys, values, mask)


def joined_attention(
    attend: Callable[..., Array], queries: Queries, keys: Keys, values: Values, mask: Mask
) -> Heads:
    """`attend(queries, keys, values, mask=mask)` of longer rows.

    Lengths are padded to multiples of 8, since cuDNN takes no odd ones, and short rows joined to
    one of its tile's length, in which each still sees only itself.
    """
    rows, length = queries.shape[:2]
    query_padding, key_padding = (-size % _CUDNN_MULTIPLE for size in mask.shape[1:])
    queries = _padded(queries, query_padding)
    keys, values = _padded(keys, key_padding), _padded(values, key_padding)
    mask = jnp.pad(mask, [(0, 0), (0, query_padding), (0, key_padding)])
    joined = joined_rows(rows, max(mask.shape[1:]))
    heads = attend(
        *(x.reshape(rows // joined, -1, *x.shape[2:]) for x in (queries, keys, values)),
        mask=joined_mask(mask, joined)[:, None],
    )
    return heads.reshape(rows, -1, *heads.shape[2:])[:, :length]


def _padded(x: Float[Array, "rows length heads width"], positions: int) -> Array:
    return jnp.pad(x, [(0, 0), (0, positions), (0, 0), (0, 0)]) if positions else x


def joined_rows(rows: int, length: int) -> int:
    """How many rows of this length become one: a divisor of the rows that each device has."""
    partition = nn.logical_to_mesh_axes(("batch",))
    axes = (partition and partition[0]) or ()  # none outside a mesh
    sizes = jax.sharding.get_abstract_mesh().shape
    parts = math.prod(sizes.get(axis, 1) for axis in axes)
    rows_of_device = rows // parts if rows % parts == 0 else 1
    fitting = range(1, max(1, _CUDNN_TILE // length) + 1)
    return max(number for number in fitting if rows_of_device % number == 0)


def joined_mask(mask: Mask, joined: int) -> Mask:
    """[rows / joined, joined * queries, joined * keys]: each row sees what it saw before."""
    rows, queries, keys = mask.shape
    by_row = mask.reshape(rows // joined, joined, queries, 1, keys)
    same_row = jnp.eye(joined, dtype=bool)[None, :, None, :, None]
    return (by_row & same_row).reshape(rows // joined, joined * queries, joined * keys)


# In fewer bits the exponents stay in these bits, which halves what moves between the passes, and
# the identities of flash attention (Dao et al., 2022) save two of the passes: a row is divided by
# its sum after the product with V, and the common term of a row's softmax gradient, sum(dP * P),
# is sum(dO * O).
@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _reduced_attention(
    queries: Array, keys: Array, values: Array, bias: Array, dtype: str
) -> Array:
    return _reduced_attention_forward(queries, keys, values, bias, dtype)[0]


def _reduced_attention_forward(
    queries: Array, keys: Array, values: Array, bias: Array, dtype: str
) -> tuple[Array, tuple[Array, ...]]:
    q, k, v = (x.astype(dtype) for x in (queries, keys, values))
    scores = einsum_float32("blhk,bqhk->bhql", k, q) + bias
    exponents = jnp.exp(scores - scores.max(axis=-1, keepdims=True)).astype(dtype)
    total = exponents.astype(jnp.float32).sum(axis=-1)  # [rows, heads, queries]
    share = 1 / total.swapaxes(1, 2)[..., None]  # [rows, queries, heads, 1]
    heads = einsum_float32("bhql,blhv->bqhv", exponents, v) * share
    heads = heads.astype(values.dtype)
    return heads, (q, k, v, exponents, share, heads)


def _reduced_attention_backward(
    dtype: str, saved: tuple[Array, ...], gradient: Array
) -> tuple[Array, Array, Array, None]:
    q, k, v, exponents, share, heads = saved
    reduced = (gradient * share).astype(dtype)
    d_weights = einsum_float32("bqhv,blhv->bhql", reduced, v)
    if heads.dtype == jnp.float32:
        # From the very numbers that the next product takes, or a row's gradients don't sum to zero.
        common = (reduced.astype(jnp.float32) * heads).sum(axis=-1)  # [rows, queries, heads]
        common = common.swapaxes(1, 2)[..., None]  # [rows, heads, queries, 1]
    else:
        # With rounded heads a row's gradients would not sum to zero.
        common = (exponents.astype(jnp.float32) * d_weights).sum(axis=-1, keepdims=True)
        common = common * share.swapaxes(1, 2)
    d_scores = (exponents.astype(jnp.float32) * (d_weights - common)).astype(dtype)
    return (
        einsum_float32("bhql,blhk->bqhk", d_scores, k).astype(heads.dtype),
        einsum_float32("bhql,bqhk->blhk", d_scores, q).astype(heads.dtype),
        einsum_float32("bhql,bqhv->blhv", exponents, reduced).astype(heads.dtype),
        None,
    )


_reduced_attention.defvjp(_reduced_attention_forward, _reduced_attention_backward)


class MultiHeadAttention(nn.Module):
    """softmax(Q K^T / sqrt(d_k)) V for `num_heads` heads, projected in and out.

    Kernels keep the head axis, so that a mesh can split it. As in the paper, projections have no
    biases unless `attention_bias` asks for them.
    """

    config: ModelConfig

    def setup(self) -> None:
        config = self.config
        d_model, heads, d_k, d_v = config.d_model, config.num_heads, config.d_k, config.d_v
        inward = glorot_flattened(1, gain=_INWARD_GAIN)
        axes = ("embed", "heads", "kv")
        self.query = declare(self, "query", inward, axes, (d_model, heads, d_k))
        self.key = declare(self, "key", inward, axes, (d_model, heads, d_k))
        self.value = declare(self, "value", inward, axes, (d_model, heads, d_v))
        outward = glorot_flattened(2)
        axes = ("heads", "kv", "embed")
        self.out = declare(self, "out", outward, axes, (heads, d_v, d_model))
        biases = dict[str, Array]()
        if config.attention_bias:
            zeros, of_heads = nn.initializers.zeros, ("heads", "kv")
            for name, size in (("query", d_k), ("key", d_k), ("value", d_v)):
                biases[name] = declare(self, f"{name}_bias", zeros, of_heads, (heads, size))
            biases["out"] = declare(self, "out_bias", zeros, ("embed",), (d_model,))
        self.biases = biases
        self.dropout = Dropout(config.attention_dropout)

    def __call__(
        self,
        x: Hidden,
        memory: Memory,
        mask: Mask,
        *,
        dropout_key: DropoutKey,
    ) -> Hidden:
        keys, values = self.keys_values(memory)
        return self.attend(x, keys, values, mask, dropout_key=dropout_key)

    def keys_values(self, memory: Memory) -> tuple[Keys, Values]:
        """The projected keys and values."""
        kept = self.config.kept_dtype
        keys = self._projected("key", "bld,dhk->blhk", memory, self.key, kept)
        values = self._projected("value", "bld,dhk->blhk", memory, self.value, kept)
        axes = ("batch", "length", "heads", "kv")
        return nn.with_logical_constraint(keys, axes), nn.with_logical_constraint(values, axes)

    def attend(
        self,
        x: Hidden,
        keys: Keys,
        values: Values,
        mask: Mask,
        *,
        dropout_key: DropoutKey,
    ) -> Hidden:
        """Attention of `x` over projected keys and values."""
        dtype, kept = self.config.dtype, self.config.kept_dtype
        queries = self._projected("query", "bld,dhk->blhk", x, self.query, kept)
        queries = nn.with_logical_constraint(queries, ("batch", "length", "heads", "kv"))
        # Callers that want the weights make this collection mutable.
        wants_weights = self.is_mutable_collection("intermediates")
        if self._uses_cudnn(mask) and not wants_weights:
            heads = cudnn_attention(queries, keys, values, mask)
        else:
            # In bfloat16 the factor itself would be rounded, unless d_k is a power of 4.
            queries = (queries.astype(jnp.float32) * self.config.d_k**-0.5).astype(kept)
            if self.config.attention_dropout or wants_weights:
                weights = attention_weights(queries, keys, mask, dtype)
                self.sow("intermediates", "weights", weights)
                weights = self.dropout(weights, dropout_key=dropout_key)
                heads = weighted(weights, values, dtype).astype(kept)
            else:
                heads = attention(queries, keys, values, mask, dtype)
        heads = nn.with_logical_constraint(heads, ("batch", "length", "heads", "kv"))
        return self._projected("out", "bqhv,hvd->bqd", heads, self.out, kept)

    def _uses_cudnn(self, mask: Mask) -> bool:
        """Whether the kernel is chosen and its tile would be more than half full."""
        if self.config.attention_kernel != "cudnn" or self.config.kept_dtype != "bfloat16":
            return False
        rows, *lengths = mask.shape
        length = max(lengths) + -max(lengths) % _CUDNN_MULTIPLE
        return 2 * length * joined_rows(rows, length) > _CUDNN_TILE

    def for_cache(self, memory: Memory) -> KeysValues:
        """Keys and values as decoding keeps them, in the order in which a step's two products read
        them: with keys before d_k, or heads last, XLA's CPU products take four to ten times as
        long."""
        keys, values = self.keys_values(memory)
        return {
            # [rows, heads, d_k, keys] and [rows, heads, keys, d_v]
            "key": jnp.transpose(keys, (0, 2, 3, 1)).astype(self.config.dtype),
            "value": jnp.transpose(values, (0, 2, 1, 3)).astype(self.config.dtype),
        }

    def extended(self, past: KeysValues, x: Newest, index: Int[Array, ""]) -> KeysValues:
        """`past` with position `index` of every beam, rounded to `config.dtype`, in the slot of
        that beam's number."""
        keys, values = (new.astype(past["key"].dtype) for new in self.for_cache(x).values())
        first_slot = index * x.shape[1]
        return {
            "key": jax.lax.dynamic_update_slice_in_dim(past["key"], keys, first_slot, axis=3),
            "value": jax.lax.dynamic_update_slice_in_dim(past["value"], values, first_slot, axis=2),
        }

    def attend_cached(
        self, x: Newest, kept: KeysValues, mask: Seen
    ) -> tuple[Newest, Float[Array, "rows heads beams keys"]]:
        """Attention of each beam's newest token over a row's cached keys and values, and its
        weights. Products with these have their type."""
        keys, values = kept["key"], kept["value"]
        cached = str(keys.dtype)
        queries = self._projected("query", "brd,dhk->brhk", x, self.query, "float32")
        queries = queries * self.config.d_k**-0.5
        scores = product("brhk,bhkl->bhrl", queries, keys, cached)
        weights = jax.nn.softmax(scores + mask_bias(mask)[:, None], axis=-1)
        heads = product("bhrl,bhlv->bhrv", weights, values, cached)
        return self._projected("out", "bhrv,hvd->brd", heads, self.out, "float32"), weights

    def _projected(self, name: str, spec: str, x: Array, kernel: Array, dtype: str) -> Array:
        """`x` times a kernel, with its bias if there are any, as `dtype`."""
        projected = product(spec, x, kernel, self.config.dtype)
        if name in self.biases:
            projected = with_bias(projected, self.biases[name])
        return projected.astype(dtype)
