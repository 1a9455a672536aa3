"""Digests: the same on NumPy, on JAX and on any mesh; different for any change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.rundir import digests
from flaxformer_mt.rundir.digests import tree_digest

DTYPES = ["bool", "int8", "uint16", "float16", "bfloat16", "int32", "uint32", "float32"]
shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple)


def array_digest(array: np.ndarray | jax.Array) -> str:
    return tree_digest({"": array})[""]


def some_array(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    width = jnp.dtype(dtype).itemsize
    return random.integers(0, 256, (*shape, width), dtype=np.uint8).view(jnp.dtype(dtype))[..., 0]


def reference(array: np.ndarray) -> str:
    """The documented sum, an element at a time in Python's integers."""

    def avalanche(x, multiplier, second):
        x ^= x >> 16
        x = x * multiplier % 2**32
        x ^= x >> 13
        x = x * second % 2**32
        return x ^ (x >> 16)

    lanes = [0, 0]
    width = min(4, array.dtype.itemsize)
    data = np.ascontiguousarray(array).tobytes()
    for index in range(len(data) // width):
        word = int.from_bytes(data[index * width : (index + 1) * width], "little")
        place = avalanche((index + 0x9E3779B9) % 2**32, 0x85EBCA6B, 0xC2B2AE35)
        lanes[0] += avalanche(word ^ place, 0x85EBCA6B, 0xC2B2AE35)
        lanes[1] += avalanche((word + place * 0x2C1B3C6D) % 2**32, 0x7FEB352D, 0x846CA68B)
    return f"{array.dtype}{list(array.shape)}:" + "".join(f"{x % 2**32:08x}" for x in lanes)


@settings(deadline=None, max_examples=40)
@given(shapes, st.sampled_from([*DTYPES, "int64", "float64"]), st.integers(0, 1000))
def test_numpy_equals_the_definition(shape, dtype, seed):
    array = some_array(shape, dtype, seed)
    assert array_digest(array) == reference(array)


@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_equals_numpy(dtype):
    for shape in [(), (0, 3), (3, 1, 7)]:
        array = some_array(shape, dtype, 1)
        assert array_digest(jnp.asarray(array)) == array_digest(array)


def test_arrays_longer_than_a_block_agree(monkeypatch):
    monkeypatch.setattr(digests, "_BLOCK", 70)
    monkeypatch.setattr(digests, "_QUICK", 0)  # JAX's arrays are mixed by a program
    array = some_array((3, 100), "float32", 2)
    assert array_digest(jnp.asarray(array)) == array_digest(array) == reference(array)


@settings(deadline=None, max_examples=100)
@given(st.data(), st.sampled_from([d for d in DTYPES if d != "bool"]), st.integers(0, 1000))
def test_any_flipped_bit_shows(data, dtype, seed):
    """Also those of a NaN's payload and of a zero's sign."""
    array = some_array((3, 5), dtype, seed)
    raw = bytearray(array.tobytes())
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    flipped = np.frombuffer(bytes(raw), array.dtype).reshape(array.shape)
    assert array_digest(flipped) != array_digest(array)


def test_path_dtype_shape_and_kind_of_key_are_part_of_it():
    zeros = [np.zeros(shape, dtype) for shape in [(4,), (2, 2), (4, 1)] for dtype in DTYPES]
    assert len({array_digest(array) for array in zeros}) == len(zeros)
    first, second = jnp.zeros((2, 2)), jnp.ones((2, 2))
    digest = tree_digest({"a": {"x": first}, "b": (second, None)})
    assert list(digest) == ["a/x", "b/0"]
    assert digest != tree_digest({"a": {"x": second}, "b": (first, None)})
    key = jax.random.key(3)
    assert array_digest(key).startswith("key<fry>[]:")
    assert array_digest(key) != array_digest(jax.random.key(4))

    # What has none is refused.
    with pytest.raises(ValueError, match="same path"):
        tree_digest({"a/b": jnp.zeros(1), "a": {"b": jnp.zeros(1)}})
