"""The Transformer of "Attention Is All You Need" (arXiv 1706.03762), section 3."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.attention import Hidden, Seen, attention_mask
from flaxformer_mt.model.dropout import DropoutKey
from flaxformer_mt.model.embedding import CHUNK, Embedding
from flaxformer_mt.model.kernels import product
from flaxformer_mt.model.stacks import Decoder, Encoder

Src = Int[Array, "rows src_length"]
Tgt = Int[Array, "rows tgt_length"]
Cache = dict[str, Any]
"""The state of decoding between steps, a plain dict with one sentence per row.

    "self"      {layer: {"key", "value"}}   in `cache_dtype`, keys = length * beams, position by
                                            position
    "cross"     {layer: {"key", "value"}}   in `config.dtype`, keys = src_length
    "beams"     {"ancestry"}                [rows, beams, length] int32
                {"coverage"}                [rows, beams, src_length] float32, if asked for
    "src_mask"                              [rows, src_length] bool

"key" is [rows, heads, d_k, keys] and "value" [rows, heads, keys, d_v]. "coverage" is the sum of a
hypothesis's attention to each source token, and 1 for padding.

A beam's keys and values stay where they were written. When a search reorders its hypotheses, only
the leaves of "beams" move, along axis 1. `ancestry` is a small table with the slot of each of a
hypothesis's past positions; other hypotheses' keys are masked out. Reordering keys and values would
read and write all of them at every step, which takes a CPU longer than the products with them.
Attending over all slots costs `beams` times the multiplications, but a row's beams then share their
keys: matrix products instead of many matrix-vector products, and each key is read once.
"""


class Transformer(nn.Module):
    """Encoder and decoder over token ids; parameters float32 under {"params": ...}.

    Arrays of ids are int32 [rows, length]. A segment id names a token's sentence within the row; 0
    is padding. Positions restart at 0 with each segment, so packed sentences give what they would
    in rows of their own.
    """

    config: ModelConfig
    src_vocab_size: int
    tgt_vocab_size: int
    cache_dtype: str = ""  # of past keys and values in decoding; "": the config's

    def setup(self) -> None:
        self.embedding = Embedding(self.config, self.src_vocab_size, self.tgt_vocab_size)
        self.encoder = Encoder(self.config)
        self.decoder = Decoder(self.config)

    def of_types(self, count: int) -> "Transformer":
        """The model with this many target types; `embedding.of_types` makes its parameters."""
        config = self.config
        if config.tie == "all":
            config = dataclasses.replace(config, tie="target")
        return self.clone(config=config, tgt_vocab_size=count)

    def __call__(
        self,
        src: Src,
        tgt_in: Tgt,
        *,
        src_segment_ids: Src,
        tgt_segment_ids: Tgt,
        src_positions: Src,
        tgt_positions: Tgt,
        dropout_key: DropoutKey,
    ) -> Hidden:
        """The decoder's hidden states, float32, before the softmax matrix.

        The loss multiplies by that matrix (`softmax_table`, `softmax_bias`) piece by piece, so that
        all logits are never in memory at once. Without a
        `dropout_key` there is no dropout.
        """
        encoded = self.encode(
            src,
            src_segment_ids=src_segment_ids,
            src_positions=src_positions,
            dropout_key=dropout_key,
        )
        x = self.embedding.target(
            tgt_in, tgt_positions, length=tgt_in.shape[1], dropout_key=dropout_key
        )
        return self.decoder(
            x,
            encoded,
            attention_mask(tgt_segment_ids, tgt_segment_ids, causal=True),
            attention_mask(tgt_segment_ids, src_segment_ids),
            dropout_key=dropout_key,
        )

    def encode(
        self,
        src: Src,
        *,
        src_segment_ids: Src,
        src_positions: Src,
        dropout_key: DropoutKey,
    ) -> Hidden:
        """The encoder's output, float32."""
        x = self.embedding.source(src, src_positions, dropout_key=dropout_key)
        mask = attention_mask(src_segment_ids, src_segment_ids)
        return self.encoder(x, mask, dropout_key=dropout_key)

    def start_cache(
        self,
        encoded: Hidden,
        src_segment_ids: Src,
        *,
        beams: int,
        length: int,
        coverage: bool = False,
    ) -> Cache:
        """The state of decoding before its first token, with room for `length` positions;
        `coverage` also records how much each source token has been attended to."""
        config = self.config
        src_mask = src_segment_ids != 0  # [rows, src_length]
        rows = src_mask.shape[0]
        dtype = self.cache_dtype or config.dtype
        cross = self.decoder.cross_keys_values(encoded)
        empty = {
            "key": jnp.zeros((rows, config.num_heads, config.d_k, length * beams), dtype),
            "value": jnp.zeros((rows, config.num_heads, length * beams, config.d_v), dtype),
        }
        by_beam = {"ancestry": jnp.zeros((rows, beams, length), jnp.int32)}
        if coverage:
            padding = (~src_mask).astype(jnp.float32)[:, None]  # [rows, 1, src_length]
            by_beam["coverage"] = jnp.broadcast_to(padding, (rows, beams, padding.shape[2]))
        return {
            "self": {layer: dict(empty) for layer in cross},
            "cross": cross,
            "beams": by_beam,
            "src_mask": src_mask,
        }

    def decode_step(
        self, tokens: Int[Array, "rows beams"], index: Int[Array, ""], past: Cache
    ) -> tuple[Float[Array, "rows beams tgt_vocab"], Cache]:
        """Logits after `tokens` at position `index` (0: the begin mark), and the cache with them
        added."""
        ancestry = past["beams"]["ancestry"]
        position, room = jnp.reshape(index, (1, 1)), ancestry.shape[2]
        x = self.embedding.target(tokens, position, length=room, dropout_key=None)
        ancestry = with_position(ancestry, index)
        src_mask = past["src_mask"][:, None, :]
        x, new, attended = self.decoder.decode_step(
            x,
            index,
            past["self"],
            past["cross"],
            visible(ancestry, index),
            jnp.broadcast_to(src_mask, (*tokens.shape, src_mask.shape[2])),
        )
        beams = {"ancestry": ancestry}
        if "coverage" in past["beams"]:
            beams["coverage"] = past["beams"]["coverage"] + attended
        return self.logits(x), {**past, "self": new, "beams": beams}

    def logits(self, hidden: Hidden) -> Float[Array, "rows length tgt_vocab"]:
        """Un-normalised log-probabilities of the next token, float32."""
        table = self.embedding.softmax()
        bias = self.embedding.softmax_bias
        rows, d_model = table.shape

        def laid_out(
            form: tuple[int, ...], hidden: Array, table: Array, bias: Array | None
        ) -> Array:
            types = np.arange(rows).reshape(1, 1, *form)
            spec = "bld,vd->blv" if len(form) == 1 else "bld,cvd->blcv"
            logits = product(spec, hidden, table.reshape(*form, d_model), self.config.dtype)
            if bias is not None:
                logits = logits + bias.reshape(types.shape)
            if rows > self.tgt_vocab_size:
                # Rows that pad the table.
                logits = jnp.where(types < self.tgt_vocab_size, logits, -jnp.inf)
            return logits.reshape(*hidden.shape[:2], rows)

        flat = functools.partial(laid_out, (rows,))
        # Search reads logits by chunks. A TPU writes them so; a CPU would transpose the table.
        chunked = functools.partial(laid_out, (-1, CHUNK)) if rows % CHUNK == 0 else flat
        logits = jax.lax.platform_dependent(hidden, table, bias, tpu=chunked, default=flat)
        return nn.with_logical_constraint(logits, ("batch", "length", "vocab"))


def grown(cache: Cache, length: int) -> Cache:
    """The same cache with room for `length` positions, no fewer than before; NumPy's or JAX's."""
    ancestry = cache["beams"]["ancestry"]
    new_positions = length - ancestry.shape[2]
    if not new_positions:
        return cache
    new_keys = new_positions * ancestry.shape[1]

    def longer(leaf: Array, axis: int, size: int) -> Array:
        pad: Any = jnp.pad if isinstance(leaf, jax.Array) else np.pad
        return pad(leaf, [(0, size if n == axis else 0) for n in range(leaf.ndim)])

    past = {
        layer: {
            "key": longer(leaves["key"], 3, new_keys),
            "value": longer(leaves["value"], 2, new_keys),
        }
        for layer, leaves in cache["self"].items()
    }
    beams = {**cache["beams"], "ancestry": longer(ancestry, 2, new_positions)}
    return {**cache, "self": past, "beams": beams}


def with_position(
    ancestry: Int[Array, "rows beams length"], index: Int[Array, ""]
) -> Int[Array, "rows beams length"]:
    """The ancestry once every beam has written position `index`."""
    slots = jnp.arange(ancestry.shape[1])[None, :, None]
    slots = jnp.broadcast_to(slots, (*ancestry.shape[:2], 1))  # [rows, beams, 1]
    return jax.lax.dynamic_update_slice_in_dim(ancestry, slots.astype(jnp.int32), index, axis=2)


def visible(ancestry: Int[Array, "rows beams length"], index: Int[Array, ""]) -> Seen:
    """Which keys are a hypothesis's own past, up to position `index`: one slot per position."""
    rows, beams, length = ancestry.shape
    # [rows, beams, length, slots]
    is_own_slot = ancestry[:, :, :, None] == jnp.arange(beams)[None, None, None, :]
    is_own_slot = is_own_slot & (jnp.arange(length) <= index)[None, None, :, None]
    return is_own_slot.reshape(rows, beams, length * beams)
