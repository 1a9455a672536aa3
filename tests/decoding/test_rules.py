"""What a search may generate: no n-gram twice, a prefix, the end mark alone at the limit."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.decoding.rules import Rules, allowed, repeats
from tests.decoding.reference import EOS, PAD

VOCAB = 7
RULES = Rules(beam_size=4)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_repeats_are_what_a_loop_finds(n):
    rng = np.random.default_rng(n)
    tokens = rng.integers(3, VOCAB, (4, 3, 12), np.int32)
    for position in range(13):
        found = jax.jit(repeats, static_argnames=("n", "vocab"))(
            tokens, jnp.int32(position), n, vocab=VOCAB
        )
        for row in range(4):
            for beam in range(3):
                past = tokens[row, beam, :position].tolist()
                grams = {tuple(past[i : i + n]) for i in range(position - n + 1)}
                last = tuple(past[position - n + 1 :]) if position >= n - 1 else None
                banned = [last is not None and (*last, token) in grams for token in range(VOCAB)]
                assert found[row, beam].tolist() == banned


def test_a_prefix_comes_first_and_the_end_mark_alone_at_the_limit():
    tokens = jnp.zeros((3, 1, 8), jnp.int32)
    prefix = jnp.array([[5, 6], [4, PAD], [PAD, PAD]], jnp.int32)
    limits = jnp.array([8, 8, 2])

    def types(position):
        mask = allowed(RULES, tokens, jnp.int32(position), limits, prefix, vocab=VOCAB)
        return [np.flatnonzero(row).tolist() for row in np.asarray(mask)[:, 0]]

    free = [EOS, 3, 4, 5, 6]
    assert types(0) == [[5], [4], free]
    assert types(1) == [[6], free, [EOS]]
    assert types(2) == [free, free, [EOS]]


def test_a_longer_n_gram_takes_no_larger_program():
    def size(n):
        rules = Rules(beam_size=1, no_repeat=n)
        arrays = jnp.zeros((1, 1, 500), int), jnp.array(9), jnp.array([9]), jnp.zeros((1, 0), int)
        return len(str(jax.make_jaxpr(functools.partial(allowed, rules, vocab=7))(*arrays)))

    assert size(300) < 1.1 * size(2)
    assert size(2**31 - 1) == size(0)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"n_best": 3}, "n_best = 3 must lie between 1 and beam_size = 2"),
        ({"no_repeat": -1}, "at least 0"),
    ],
)
def test_contradictory_rules_are_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        Rules(beam_size=2, **changes)
