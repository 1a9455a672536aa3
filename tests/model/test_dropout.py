"""Dropout: its statistics, its places, and that it is off where it must be."""

import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.model.dropout import Dropout, counter_bits, layer_key
from tests.model.examples import build, hidden_of, packed_rows, tiny_config

SHAPE = (64, 32, 128)


def keys(count):
    return jax.vmap(lambda key: jax.random.bits(key, (2,), jnp.uint32))(
        jax.random.split(jax.random.key(0), count)
    )


def drop(rate, seed, x):
    return Dropout(rate).apply({}, x, dropout_key=jax.random.key(seed))


@pytest.mark.parametrize(("rate", "dtype"), [(0.1, "bfloat16"), (0.9, "float32")])
def test_rate_and_mean(rate, dtype):
    y = np.asarray(drop(rate, 1, jnp.ones(SHAPE, dtype)), np.float64)
    error = 5 * np.sqrt(rate * (1 - rate) / y.size)
    assert abs((y == 0).mean() - rate) < error
    assert abs(y.mean() - 1) < error / (1 - rate)
    np.testing.assert_allclose(np.unique(y), [0, 1 / (1 - rate)], rtol=1e-6)
    # Along each axis as well: a mask must not favour a row, a position or a channel.
    for axis in range(3):
        rates = (y == 0).mean(axis=tuple(set(range(3)) - {axis}))
        spread = np.sqrt(rate * (1 - rate) / (y.size / y.shape[axis]))
        assert np.abs(rates - rate).max() < 5 * spread
        assert 0.7 * spread < rates.std() < 1.3 * spread


def test_bits_are_uniform_and_uncorrelated():
    bits = np.asarray(counter_bits(keys(1)[0], SHAPE))
    size = bits.size
    for bit in range(32):
        share = ((bits >> bit) & 1).mean()
        assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(size), bit
    uniform = bits / 2**32 - 0.5
    for lags in [(0, 0, 1), (0, 0, 2), (0, 1, 0), (1, 0, 0), (0, 1, 1), (1, 0, 5)]:
        moved = np.roll(uniform, lags, axis=(0, 1, 2))
        correlation = (uniform * moved).mean() * 12
        assert abs(correlation) < 5 / np.sqrt(size), lags
    counts = np.bincount(bits.ravel() >> 22, minlength=1024)
    chi_squared = ((counts - size / 1024) ** 2 / (size / 1024)).sum()
    assert abs(chi_squared - 1023) < 5 * np.sqrt(2 * 1023)


def test_masks_of_keys_that_differ_in_one_bit_of_either_word_are_independent():
    base = np.asarray(keys(1)[0])
    near = [base ^ np.uint32(change) for change in ([1, 0], [0, 1], [1 << 31, 0], [0, 1 << 31])]
    masks = [
        np.asarray(counter_bits(jnp.asarray(key), SHAPE)) < 2**31
        for key in [base, *near, *np.asarray(keys(4))[1:]]
    ]
    for first, second in itertools.combinations(masks, 2):
        assert abs((first == second).mean() - 0.5) < 5 * 0.5 / np.sqrt(first.size)


def test_the_mask_depends_on_key_and_index_alone():
    bits = counter_bits(keys(1)[0], (8, 4, 6))
    jitted = jax.jit(lambda key: counter_bits(key, (8, 4, 6))[2:4])(keys(1)[0])
    np.testing.assert_array_equal(bits[2:4], jitted)
    np.testing.assert_array_equal(drop(0.5, 1, jnp.ones((8, 4))), drop(0.5, 1, jnp.ones((8, 4))))
    assert (drop(0.5, 1, jnp.ones((8, 4))) != drop(0.5, 2, jnp.ones((8, 4)))).any()


class Enclosing(nn.Module):
    """Dropout one module down, under this name."""

    inner: str

    @nn.compact
    def __call__(self, x, *, dropout_key):
        return Dropout(0.5, name=self.inner)(x, dropout_key=dropout_key)


@pytest.mark.parametrize(
    ("name", "layer", "mask"),
    [
        ("dropout", None, "eb33 a311 f275 a4f6"),
        ("layers", 3, "4724 a8d2 83e0 7e37"),
        # An unrolled layer has the masks of a scanned one.
        ("layers_3", 3, "4724 a8d2 83e0 7e37"),
    ],
)
def test_a_key_and_a_path_give_the_masks_of_earlier_releases(name, layer, mask):
    """So runs resume with the masks with which they began: Flax derived these keys itself."""
    key = jax.random.key(4)
    if layer is not None:
        key = layer_key(key, layer)
    dropped = Enclosing(name).apply({}, jnp.ones((4, 16)), dropout_key=key)
    assert np.packbits(dropped > 0).tobytes().hex(" ", 2) == mask


def test_the_gradient_has_the_mask_of_the_value():
    x = jnp.full((16, 16), 2.0)
    y, pull = jax.vjp(lambda x: drop(0.4, 3, x), x)
    np.testing.assert_allclose(pull(jnp.ones_like(x))[0], y / 2, rtol=1e-6)


def test_rate_0_and_no_key_are_the_identity():
    x = jnp.arange(6.0)
    assert Dropout(0.0).apply({}, x, dropout_key=jax.random.key(0)) is x
    assert Dropout(0.7).apply({}, x, dropout_key=None) is x


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        # Sub-layers: 2 in an encoder layer, 3 in a decoder layer; and the two embedding sums.
        ({"dropout": 0.1}, 3 * 2 + 2 * 3 + 2),
        ({"attention_dropout": 0.1}, 3 + 2 * 2),
        ({"ffn_dropout": 0.1}, 3 + 2),
    ],
)
def test_number_of_places(settings, places, monkeypatch):
    """The paper's section 5.4, and nowhere else."""
    drawn = []
    monkeypatch.setattr(
        "flaxformer_mt.model.dropout.counter_bits",
        lambda key, shape: drawn.append(shape) or jnp.zeros(shape, jnp.uint32),
    )
    model, params = build(tiny_config(encoder_layers=3, decoder_layers=2, **settings))
    hidden_of(model, params, packed_rows(), dropout_seed=0)
    assert len(drawn) == places
