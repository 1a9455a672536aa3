"""What must not change an output: the future, padding, and the other sentences of a packed row."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.model.attention import attention_mask, mask_bias
from flaxformer_mt.model.embedding import Embedding
from tests.model.examples import (
    VOCAB,
    apply,
    build,
    hidden_of,
    jit,
    pack,
    packed_rows,
    random_pair,
    tiny_config,
)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_position_has_no_gradient_from_later_inputs(norm, monkeypatch):
    """Exactly zero, input vector by input vector, and not zero from the inputs up to its own."""
    model, params = build(tiny_config(norm=norm))
    length = 5
    rows = pack([[random_pair(np.random.default_rng(0), 4, length)]], 4, length)
    plain = Embedding.target

    def output(shift):
        def shifted(self, tokens, positions, **keywords):
            return plain(self, tokens, positions, **keywords) + shift[None]

        monkeypatch.setattr(Embedding, "target", shifted)
        return apply(model, params, rows)[0]

    jacobian = jit(jax.jacrev(output))(jnp.zeros((length, model.config.d_model)))
    strength = np.abs(jacobian).max(axis=(1, 3))  # [output position, input position]
    assert (strength[np.triu_indices(length, 1)] == 0).all()
    assert (strength[np.tril_indices(length)] > 1e-4).all()


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_padding_changes_nothing(positions):
    """However much of it there is, and whatever tokens stand under it."""
    model, params = build(tiny_config(positions=positions))
    pairs = [random_pair(np.random.default_rng(row), 3 + row, 5 - row) for row in range(2)]
    tight, wide = (pack([[pair] for pair in pairs], *lengths) for lengths in ((4, 5), (9, 11)))
    narrow, broad = (hidden_of(model, params, rows) for rows in (tight, wide))
    src = np.where(wide.src_segment_ids == 0, VOCAB - 1, wide.src)
    tgt_in = np.where(wide.tgt_segment_ids == 0, VOCAB - 1, wide.tgt_in)
    dirty = hidden_of(model, params, dataclasses.replace(wide, src=src, tgt_in=tgt_in))
    for row, (_, tgt) in enumerate(pairs):
        sentence = slice(len(tgt))
        np.testing.assert_allclose(narrow[row, sentence], broad[row, sentence], atol=5e-6, rtol=0)
        np.testing.assert_array_equal(dirty[row, sentence], broad[row, sentence])


def test_a_packed_sentence_leaves_its_neighbour_bit_unchanged():
    model, params = build(tiny_config())
    rng = np.random.default_rng(2)
    first, second, replacement = (random_pair(rng, 3, 4) for _ in range(3))
    before = hidden_of(model, params, pack([[first, second]], 7, 9))
    after = hidden_of(model, params, pack([[first, replacement]], 7, 9))
    np.testing.assert_array_equal(before[0, :4], after[0, :4])
    assert np.abs(before[0, 4:8] - after[0, 4:8]).max() > 1e-2


def test_mask_of_segments_padding_and_causality():
    segments = np.array([[1, 1, 2, 0]], np.int32)
    np.testing.assert_array_equal(
        attention_mask(segments, segments)[0],
        np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], bool),
    )
    np.testing.assert_array_equal(
        attention_mask(segments, segments, causal=True)[0],
        np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]], bool),
    )
    np.testing.assert_array_equal(
        attention_mask(segments, np.array([[2, 1]], np.int32))[0],
        np.array([[0, 1], [0, 1], [1, 0], [0, 0]], bool),
    )
    # A masked score has weight exactly 0.
    bias = mask_bias(jnp.array([True, False, True]))
    assert bias.dtype == jnp.float32
    weights = jax.nn.softmax(jnp.array([-50.0, 1e4, -40.0]) + bias)
    assert weights[1] == 0 and jnp.isfinite(weights).all()


def test_positions_and_indices_outside_their_table_are_loud():
    model, params = build(tiny_config(positions="learned", max_length=4))
    rows = pack([[random_pair(np.random.default_rng(0), 5, 3)]], 5, 3)
    with pytest.raises(ValueError, match=r"5 src positions .* model.max_length = 4"):
        hidden_of(model, params, rows)
    model, params = build(tiny_config())
    rows = packed_rows()
    rows.src[1, 0] = VOCAB
    hidden = hidden_of(model, params, rows)
    assert jnp.isnan(hidden[1]).any() and jnp.isfinite(hidden[2]).all()
