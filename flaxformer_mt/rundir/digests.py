"""Digests of arrays that don't depend on the mesh.

A leaf's digest is a sum, modulo 2^32 in two lanes, of a mixture of each 32-bit word with its
position, together with dtype and shape. A sum has no order, so every device sums its own shard and
XLA adds them up; NumPy gets the same numbers. Both lanes are one-to-one in the word: one flipped
bit always shows, other damage (not malice) goes unnoticed with a chance of about 2^-64.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flaxformer_mt.mixing import MURMUR_32, Mixer

# The multipliers of Wellons' "lowbias32".
_SECOND_LANE = Mixer(np.uint32, (16, 13, 16), (0x7FEB352D, 0x846CA68B))
_UNSIGNED = {1: "uint8", 2: "uint16", 4: "uint32"}
_QUICK = 1 << 21  # elements that NumPy mixes faster than a program compiles
_BLOCK = 1 << 16  # words that NumPy mixes at a time, in the cache


def tree_digest(tree: Any) -> dict[str, str]:
    """The digest of every leaf by its path, such as "encoder/layer_0/ffn/kernel".

    A digest reads "float32[512, 2048]:" and sixteen hexadecimal digits. Leaves are JAX arrays of
    any sharding, PRNG keys included, or NumPy arrays. All processes must call this together.
    """
    leaves = flatten_paths(tree)
    sums = {}  # path -> two lanes
    for path, leaf in leaves.items():
        sums[path] = _lanes(leaf)
        if isinstance(leaf, jax.Array) and next(iter(leaf.devices())).platform == "cpu":
            # On CPUs, some tens of sums over devices at a time can deadlock: programs start as
            # threads become free. Accelerators keep the order of dispatch.
            jax.block_until_ready(sums[path])
    # One transfer for all, after every leaf's sum was dispatched.
    sums = jax.device_get(sums)
    return {
        path: f"{leaf.dtype}{list(leaf.shape)}:{sums[path][0]:08x}{sums[path][1]:08x}"
        for path, leaf in leaves.items()
    }


def flatten_paths(tree: Any) -> dict[str, Any]:
    """The tree's leaves by path: fields, keys and indices, joined by "/"."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    named = {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}
    if len(named) != len(leaves):
        raise ValueError("two leaves have the same path: a key contains '/' or equals an index")
    return named


def _lanes(leaf: Any) -> tuple[Any, Any]:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, jax.Array):
        devices = leaf.devices()
        is_quick = leaf.size <= _QUICK and len(devices) == 1
        if not is_quick or next(iter(devices)).platform != "cpu":
            return _lanes_on_device(leaf)
    return _lanes_on_host(np.asarray(leaf))


@jax.jit
def _lanes_on_device(array: jax.Array) -> tuple[jax.Array, jax.Array]:
    size = array.dtype.itemsize
    if array.dtype == jnp.bool_:
        words = array.astype(jnp.uint32)
    elif size == 8:
        # Two words per element on a new last axis, the low one first, as in NumPy's view.
        words = jax.lax.bitcast_convert_type(array, jnp.uint32)
    else:
        words = jax.lax.bitcast_convert_type(array, _UNSIGNED[size]).astype(jnp.uint32)
    positions = jnp.zeros(words.shape, jnp.uint32)
    for axis in range(words.ndim):
        stride = math.prod(words.shape[axis + 1 :])
        positions += jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis) * jnp.uint32(stride)
    first, second = _mix(words, positions)
    return jnp.sum(first, dtype=jnp.uint32), jnp.sum(second, dtype=jnp.uint32)


def _lanes_on_host(array: np.ndarray) -> tuple[int, int]:
    flat = np.ascontiguousarray(array).reshape(-1)
    flat = flat.view("<u4" if flat.dtype.itemsize == 8 else _UNSIGNED[flat.dtype.itemsize])
    first = second = 0
    for start in range(0, len(flat), _BLOCK):
        words = flat[start : start + _BLOCK].astype(np.uint32)
        positions = np.arange(start, start + len(words), dtype=np.uint64).astype(np.uint32)
        lanes = _mix(words, positions)
        first += int(np.sum(lanes[0], dtype=np.uint64))
        second += int(np.sum(lanes[1], dtype=np.uint64))
    return first % 2**32, second % 2**32


def _mix(words: Any, positions: Any) -> tuple[Any, Any]:
    """Two mixtures of uint32 words with their positions, for NumPy and JAX.

    Positions are mixed first: for small integers, many orders of the same words would give the same
    multiset of `word ^ position` or `word + position`.
    """
    places = MURMUR_32.mixed(positions + np.uint32(0x9E3779B9))
    first = MURMUR_32.mixed(words ^ places)
    second = _SECOND_LANE.mixed(words + places * np.uint32(0x2C1B3C6D))
    return first, second
