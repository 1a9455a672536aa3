"""What decoding keeps between steps: past keys and values, and which hypothesis owns them.

A beam's keys and values stay where they were written. When a search reorders its hypotheses, only
`ancestry` moves: a small table with the slot of each of a hypothesis's past positions. Other
hypotheses' keys are masked out. Reordering keys and values would read and write all of them at
every step, which takes a CPU longer than the products with them. Attending over all slots costs
`beams` times the multiplications, but a row's beams then share their keys: matrix products instead
of many matrix-vector products, and each key is read once.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from flaxformer_mt.config.schema import ModelConfig

Cache = dict[str, Any]
KeysValues = dict[str, Array]  # {"key", "value"} of one layer


def start(
    cross: Mapping[str, Any],
    src_mask: Bool[Array, "rows src_length"],
    config: ModelConfig,
    *,
    beams: int,
    length: int,
    dtype: str,
    coverage: bool = False,
) -> Cache:
    """The cache before the first token, with room for `length` positions.

    A plain dict with one sentence per row:

        "self"      {layer: {"key", "value"}}   zeros in `dtype`, keys = length * beams, position by
                                                position
        "cross"     {layer: {"key", "value"}}   in `config.dtype`, keys = src_length
        "beams"     {"ancestry"}                [rows, beams, length] int32
                    {"coverage"}                [rows, beams, src_length] float32, if asked for
        "src_mask"                              [rows, src_length] bool

    "key" is [rows, heads, d_k, keys] and "value" [rows, heads, keys, d_v], in the order in which a
    step's two products read them: with keys before d_k, or heads last, XLA's CPU products take four
    to ten times as long. "coverage" is the sum of a hypothesis's attention to each source token,
    and 1 for padding. A search reorders the leaves of "beams" along axis 1 and nothing else.
    """
    rows, heads, keys = src_mask.shape[0], config.num_heads, length * beams
    empty = {
        "key": jnp.zeros((rows, heads, config.d_k, keys), dtype),
        "value": jnp.zeros((rows, heads, keys, config.d_v), dtype),
    }
    own = {"ancestry": jnp.zeros((rows, beams, length), jnp.int32)}
    if coverage:
        none = jnp.where(src_mask, 0.0, 1.0)[:, None]
        own["coverage"] = jnp.broadcast_to(none, (rows, beams, none.shape[2]))
    return {
        "self": {layer: dict(empty) for layer in cross},
        "cross": {layer: _laid_out(leaves, config) for layer, leaves in cross.items()},
        "beams": own,
        "src_mask": src_mask,
    }


def room(cache: Cache) -> int:
    """How many positions fit."""
    length: int = cache["beams"]["ancestry"].shape[2]
    return length


def grown(cache: Cache, length: int) -> Cache:
    """The same cache with room for `length` positions, no fewer than before; NumPy's or JAX's."""
    ancestry = cache["beams"]["ancestry"]
    if not (more := length - room(cache)):
        return cache
    keys = more * ancestry.shape[1]

    def longer(leaf: Array, axis: int, size: int) -> Array:
        pad: Any = jnp.pad if isinstance(leaf, jax.Array) else np.pad
        return pad(leaf, [(0, size if n == axis else 0) for n in range(leaf.ndim)])

    past = {
        layer: {"key": longer(leaves["key"], 3, keys), "value": longer(leaves["value"], 2, keys)}
        for layer, leaves in cache["self"].items()
    }
    beams = {**cache["beams"], "ancestry": longer(ancestry, 2, more)}
    return {**cache, "self": past, "beams": beams}


def written(
    past: KeysValues,
    keys: Float[Array, "rows beams heads d_k"],
    values: Float[Array, "rows beams heads d_v"],
    index: Int[Array, ""],
    dtype: str,
) -> KeysValues:
    """`past` with position `index` of every beam, rounded to `dtype`, in the slot of that beam's
    number."""
    at, kept = index * keys.shape[1], past["key"].dtype
    keys = jnp.transpose(keys, (0, 2, 3, 1)).astype(dtype).astype(kept)
    values = jnp.transpose(values, (0, 2, 1, 3)).astype(dtype).astype(kept)
    return {
        "key": jax.lax.dynamic_update_slice_in_dim(past["key"], keys, at, axis=3),
        "value": jax.lax.dynamic_update_slice_in_dim(past["value"], values, at, axis=2),
    }


def with_position(
    ancestry: Int[Array, "rows beams length"], index: Int[Array, ""]
) -> Int[Array, "rows beams length"]:
    """The ancestry once every beam has written position `index`."""
    own = jnp.broadcast_to(jnp.arange(ancestry.shape[1])[None, :, None], (*ancestry.shape[:2], 1))
    return jax.lax.dynamic_update_slice_in_dim(ancestry, own.astype(jnp.int32), index, axis=2)


def visible(
    ancestry: Int[Array, "rows beams length"], index: Int[Array, ""]
) -> Bool[Array, "rows beams keys"]:
    """Which keys are a hypothesis's own past, up to position `index`: one slot per position."""
    rows, beams, length = ancestry.shape
    own = ancestry[:, :, :, None] == jnp.arange(beams)[None, None, None, :]
    own = own & (jnp.arange(length) <= index)[None, None, :, None]
    return own.reshape(rows, beams, length * beams)


def _laid_out(leaves: KeysValues, config: ModelConfig) -> KeysValues:
    return {
        "key": jnp.transpose(leaves["key"], (0, 2, 3, 1)).astype(config.dtype),
        "value": jnp.transpose(leaves["value"], (0, 2, 1, 3)).astype(config.dtype),
    }
