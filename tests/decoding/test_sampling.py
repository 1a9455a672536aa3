"""Drawing translations: the right distribution, the same draw among any neighbours."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.data.vocabulary import EOS
from flaxformer_mt.decoding.search.sampling import Sampling, keys_of, sampled, seed_words
from tests.decoding.examples import decoded, sentences

LOGITS = np.array([2.0, 1.0, 0.5, 0.0, -1.0, -50.0])
DRAWS = 20_000


def frequencies(allowed=(True,) * 6, temperature=1.0, top_k=0, top_p=1.0):
    keys = jax.random.split(jax.random.key(3), (DRAWS, 1))
    logits = jnp.broadcast_to(jnp.asarray(LOGITS, jnp.float32), (DRAWS, 1, 6))
    draw, may = jax.jit(sampled, static_argnames="top_k"), jnp.asarray(allowed)[None, None]
    settings = {
        "temperature": jnp.float32(temperature),
        "top_k": top_k,
        "top_p": jnp.float32(top_p),
    }
    log_probs, token = draw(logits, may, keys, **settings)
    # Whatever it is drawn from, its log-probability is the model's.
    model = LOGITS - np.logaddexp.reduce(LOGITS)
    np.testing.assert_allclose(log_probs[:, 0], model[np.asarray(token[:, 0])], rtol=1e-5)
    return np.bincount(np.asarray(token[:, 0]), minlength=6) / DRAWS


def assert_close(found, weights):
    expected = np.asarray(weights) / np.sum(weights)
    # Five standard deviations of a share, and nothing where nothing may be.
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / DRAWS)).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_softmax(temperature):
    assert_close(frequencies(temperature=temperature), np.exp(LOGITS / temperature))


def test_only_what_may_be_is_drawn():
    weights = np.exp(LOGITS)
    allowed = np.array([False, True, True, False, True, True])
    assert_close(frequencies(allowed), weights * allowed)
    # The likeliest k.
    assert_close(frequencies(top_k=2), weights * (np.arange(6) < 2))
    assert_close(frequencies(top_k=9), weights)
    # The nucleus. Probabilities are .55, .20, .12, .07 ...: two reach .7, three are needed for .8.
    assert_close(frequencies(top_p=0.7), weights * (np.arange(6) < 2))
    assert_close(frequencies(top_p=0.8), weights * (np.arange(6) < 3))
    assert_close(frequencies(top_p=1e-6), np.arange(6) == 0)


def test_a_low_temperature_is_greedy():
    sources = sentences(8, seed=3, longest=12)
    greedy = decoded(sources, seed=1, beam_size=1)
    cold = Sampling(temperature=1e-6)
    drawn = decoded(sources, seed=1, n_best=3, beam_size=3, sampling=cold)
    for best, draws in zip(greedy, drawn, strict=True):
        assert [hypothesis.tokens for hypothesis in draws] == [best[0].tokens] * 3
        assert draws[0].log_prob == pytest.approx(best[0].log_prob, abs=1e-5)


def test_each_token_has_a_key_whatever_the_user_s_default_generator():
    words = jnp.asarray([seed_words(7, 1, 0)], jnp.uint32)

    def keys(position):
        drawn_keys = keys_of(words, jnp.asarray(position, jnp.int32), beams=2)
        return jax.random.key_data(drawn_keys)[0].tolist()

    drawn = [keys(3), keys(4)]
    assert len({tuple(key) for keys_of_word in drawn for key in keys_of_word}) == 4
    with jax.default_prng_impl("rbg"):
        assert [keys(3), keys(4)] == drawn


SOURCES = sentences(8, seed=4, longest=12)
SENTENCE = [5, 6, 7, EOS]


def draw_tokens(sources, numbers=None, seed=7, beams=4):
    """The tokens of each source's drawn hypotheses."""
    sampling = Sampling(seed=seed, temperature=1.5)
    outputs = decoded(
        sources, seed=1, n_best=beams, beam_size=beams, sampling=sampling, numbers=numbers
    )
    return [tuple(hypothesis.tokens for hypothesis in hypotheses) for hypotheses in outputs]


def test_a_draw_depends_on_the_seed_and_the_sentence_alone():
    together = draw_tokens(SOURCES)
    numbers = [(number, 0) for number in (3, 4, 5)]
    assert draw_tokens(SOURCES[3:6], numbers=numbers) == together[3:6]
    assert draw_tokens(SOURCES, seed=8) != together


def test_further_draws_leave_the_first_ones_as_they_are():
    """Even if some of them end early."""
    for four, seven in zip(draw_tokens(SOURCES), draw_tokens(SOURCES, beams=7), strict=True):
        assert not collections.Counter(four) - collections.Counter(seven)


def test_a_sentence_is_drawn_anew_at_another_place_and_in_each_hypothesis():
    repeated = draw_tokens([SENTENCE] * 8)
    assert len(set(repeated)) == 8
    assert all(len(set(hypotheses)) > 1 for hypotheses in repeated)


def test_of_numbers_and_seeds_no_bit_is_lost():
    numbers = [(1, 0), (1 + (1 << 32), 0), (0, 1), (0, 1024), (1 << 22, 0), (1, 1), (1 << 10, 0)]
    assert len(set(draw_tokens([SENTENCE] * 7, numbers))) == 7
    assert draw_tokens(SOURCES, seed=7 + (1 << 32)) != draw_tokens(SOURCES)


@pytest.mark.parametrize("temperature", [float(np.finfo(np.float32).tiny), 1e-30, 3e38])
def test_temperatures_at_the_ends_of_float32_are_drawn_from(temperature):
    """The likeliest alone, or all alike: no division overflows into what is no number."""
    expected = np.arange(6) == 0 if temperature < 1 else np.ones(6)
    assert_close(frequencies(temperature=temperature), expected)
    allowed = np.array([False, False, True, True, False, False])
    expected = np.arange(6) == 2 if temperature < 1 else allowed
    assert_close(frequencies(allowed, temperature=temperature, top_p=0.999), expected)


def test_what_is_no_distribution_is_refused():
    for changes, message in (
        ({"temperature": 0.0}, "temperature = 0.0 must be above 0"),
        ({"temperature": 1e-46}, "temperature = 1e-46 .*1.2e-38"),
        ({"temperature": 1e39}, "must be above 0"),
        ({"top_p": 1e-46}, "top_p = 1e-46 must be above 0"),
        ({"top_k": -1}, "top_k = -1"),
    ):
        with pytest.raises(ValueError, match=message):
            Sampling(**changes)
