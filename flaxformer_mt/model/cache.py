"""What decoding keeps between steps: past keys and values, and which hypothesis owns them.

A beam's keys and values stay where they were written. When a search reorders its hypotheses, only
`ancestry` moves: a small table with the slot of each of a hypothesis's past positions. Other
hypotheses' keys are masked out. Reordering keys and values would read and write all of them at
every step, which takes a CPU longer than the products with them. Attending over all slots costs
`beams` times the multiplications, but a row's beams then share their keys: matrix products instead
of many matrix-vector products, and each key is read once.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

Cache = dict[str, Any]
KeysValues = dict[str, Array]  # {"key", "value"} of one layer
Newest = Float[Array, "rows beams d_model"]  # each beam's newest position
Seen = Bool[Array, "rows beams keys"]  # by each beam


def laid_out(
    keys: Float[Array, "rows keys heads d_k"],
    values: Float[Array, "rows keys heads d_v"],
    dtype: str,
) -> KeysValues:
    """As a step's two products read them: with keys before d_k, or heads last, XLA's CPU products
    take four to ten times as long."""
    return {
        "key": jnp.transpose(keys, (0, 2, 3, 1)).astype(dtype),
        "value": jnp.transpose(values, (0, 2, 1, 3)).astype(dtype),
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
    at, new = index * keys.shape[1], laid_out(keys, values, dtype)
    new = jax.tree.map(lambda leaf: leaf.astype(past["key"].dtype), new)
    return {
        "key": jax.lax.dynamic_update_slice_in_dim(past["key"], new["key"], at, axis=3),
        "value": jax.lax.dynamic_update_slice_in_dim(past["value"], new["value"], at, axis=2),
    }


def with_position(
    ancestry: Int[Array, "rows beams length"], index: Int[Array, ""]
) -> Int[Array, "rows beams length"]:
    """The ancestry once every beam has written position `index`."""
    own = jnp.broadcast_to(jnp.arange(ancestry.shape[1])[None, :, None], (*ancestry.shape[:2], 1))
    return jax.lax.dynamic_update_slice_in_dim(ancestry, own.astype(jnp.int32), index, axis=2)


def visible(ancestry: Int[Array, "rows beams length"], index: Int[Array, ""]) -> Seen:
    """Which keys are a hypothesis's own past, up to position `index`: one slot per position."""
    rows, beams, length = ancestry.shape
    own = ancestry[:, :, :, None] == jnp.arange(beams)[None, None, None, :]
    own = own & (jnp.arange(length) <= index)[None, None, :, None]
    return own.reshape(rows, beams, length * beams)
