"""Decoding with the real model: what the search reports is what the model says."""

from __future__ import annotations

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.config import DecodingConfig, ModelConfig
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding import decode
from flaxformer_mt.decoding.decode import DecodingError, decode_ids, plan_batches, translate_ids
from flaxformer_mt.decoding.search import beam_search, length_penalty
from flaxformer_mt.model import Transformer

VOCAB = 30
CONFIG = DecodingConfig(beam_size=4, length_penalty=0.6, max_extra_tokens=6, batch_tokens=2048)


@functools.cache
def tiny(positions: str = "sinusoidal", seed: int = 0):
    config = ModelConfig(
        encoder_layers=1,
        decoder_layers=2,
        d_model=16,
        d_ff=32,
        num_heads=2,
        d_k=8,
        d_v=8,
        max_length=24,
        positions=positions,
    )
    model = Transformer(config, VOCAB, VOCAB)
    tokens = jnp.zeros((1, 2), jnp.int32)
    init = functools.partial(
        model.init,
        src_segment_ids=tokens,
        tgt_segment_ids=tokens,
        src_positions=tokens,
        tgt_positions=tokens,
        deterministic=True,
    )
    params = nn.unbox(jax.jit(init)(jax.random.key(seed), tokens, tokens))["params"]
    # Wider spread than at the start of training, so that hypotheses differ in more than rounding.
    params = jax.tree.map(lambda leaf: leaf * 1.5, params)
    return model, params


def sentences(count: int, seed: int = 0, longest: int = 22) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest, size=count)
    return [[*rng.integers(UNK + 1, VOCAB, size=length).tolist(), EOS] for length in lengths]


def full_logits(model, params, src, prefix):
    """Logits of a whole prefix [rows, length] at once, without a cache."""
    src_ids, tgt_ids = (src != PAD).astype(jnp.int32), jnp.ones_like(prefix)

    def places(x):
        return jnp.broadcast_to(jnp.arange(x.shape[1])[None], x.shape)

    hidden = model.apply(
        {"params": params},
        src,
        prefix,
        src_segment_ids=src_ids,
        tgt_segment_ids=tgt_ids,
        src_positions=places(src),
        tgt_positions=places(prefix),
        deterministic=True,
    )
    return model.apply({"params": params}, hidden, method=Transformer.logits)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_scores_are_the_full_models(positions):
    model, params = tiny(positions)
    sources = sentences(6)
    forward = jax.jit(functools.partial(full_logits, model))
    for source, outputs in zip(
        sources, decode_ids(params, model, sources, CONFIG, n_best=3), strict=True
    ):
        assert len(outputs) == 3
        assert [o.score for o in outputs] == sorted((o.score for o in outputs), reverse=True)
        for output in outputs:
            tokens = [*output.tokens, EOS]
            prefix = np.full((1, 24), PAD, np.int32)  # one shape: later tokens change nothing
            prefix[0, : len(tokens)] = [BOS, *output.tokens]
            src = np.pad(np.array([source], np.int32), ((0, 0), (0, 24 - len(source))))
            log_probs = jax.nn.log_softmax(forward(params, src, prefix)[0])
            forced = sum(float(log_probs[i, token]) for i, token in enumerate(tokens))
            assert output.log_prob == pytest.approx(forced, abs=2e-5)
            expected = output.log_prob / length_penalty(len(tokens), 0.6)
            assert output.score == pytest.approx(expected, rel=1e-6)
            limit = min(len(source) + 6, 24)
            assert len(tokens) <= limit
            assert output.at_limit == (len(tokens) == limit)


@pytest.mark.parametrize("beam", [1, 4])
def test_the_cache_follows_its_hypotheses(beam):
    """The same search with every prefix recomputed from its tokens finds the same."""
    model, params = tiny()
    sources = sentences(6, seed=1, longest=16)
    src = np.zeros((6, 16), np.int32)
    for row, source in enumerate(sources):
        src[row, : len(source)] = source
    length = 22  # the longest source and 6 more: as much as decode_ids allows

    def step(tokens, index, cache):
        prefix = cache["self"]["prefix"].at[:, :, index].set(tokens)
        logits = full_logits(
            model, params, jnp.repeat(src, beam, axis=0), prefix.reshape(-1, length)
        )
        logits = logits[:, index].reshape(6, beam, VOCAB)
        return logits, {"self": {"prefix": prefix}}

    @jax.jit
    def search():
        return beam_search(
            step,
            {"self": {"prefix": jnp.zeros((6, beam, length), jnp.int32)}},
            source_lengths=jnp.array([len(source) for source in sources]),
            beam_size=beam,
            alpha=0.6,
            max_extra_tokens=6,
            max_length=length,
            bos=BOS,
            eos=EOS,
            pad=PAD,
            n_best=beam,
            suppress=(UNK,),
        )

    expected = search()
    settings = dataclasses.replace(CONFIG, beam_size=beam)
    decoded = decode_ids(params, model, sources, settings, n_best=beam)
    for row, outputs in enumerate(decoded):
        for slot, output in enumerate(outputs):
            tokens = expected.tokens[row, slot, : expected.lengths[row, slot]].tolist()
            assert [*output.tokens, EOS] == tokens
            assert output.score == pytest.approx(float(expected.scores[row, slot]), abs=1e-5)


@pytest.mark.parametrize("beam", [1, 4])
def test_neighbours_and_batch_size_change_nothing(beam):
    model, params = tiny(seed=1)  # says things of many lengths
    sources = sentences(40, seed=2)
    config = dataclasses.replace(CONFIG, beam_size=beam)
    together = decode_ids(params, model, sources, config)
    others = [
        decode_ids(params, model, sources[::-1], config)[::-1],
        decode_ids(params, model, sources, dataclasses.replace(config, batch_tokens=256)),
        [decode_ids(params, model, [source], config)[0] for source in sources],
    ]
    assert len({len(item[0].tokens) for item in together}) > 3
    for other in others:
        for a, b in zip(together, other, strict=True):
            assert a[0].tokens == b[0].tokens
            assert a[0].score == pytest.approx(b[0].score, rel=1e-5)


def test_compiles_once_a_shape_whatever_the_parameters():
    model, params = tiny()
    sources = sentences(40, seed=3)
    config = dataclasses.replace(CONFIG, beam_size=2)
    first = translate_ids(params, model, sources, config)
    before = decode.compilations()
    assert translate_ids(params, model, sources, config) == first
    _, other_params = tiny(seed=1)
    again = Transformer(model.config, VOCAB, VOCAB)
    assert translate_ids(other_params, again, sources, config) != first
    translate_ids(params, model, sources, dataclasses.replace(config, length_penalty=1.0))
    assert decode.compilations() == before


def test_plan_covers_every_source_once_in_few_shapes():
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.geometric(0.05, size=3000), 250).tolist()
    config = DecodingConfig(beam_size=4, batch_tokens=8192)
    batches = list(plan_batches(lengths, config, 250))
    assert sorted(n for batch in batches for n in batch.sources) == list(range(3000))
    for batch in batches:
        assert len(batch.sources) <= batch.rows
        assert max(lengths[n] for n in batch.sources) <= batch.src_length <= 250
        assert batch.rows * batch.src_length * 4 <= 8192
    # 16, 32, 64, 128 and 250 positions, and the last batch's rows.
    assert len({(batch.rows, batch.src_length) for batch in batches}) <= 6
    assert list(plan_batches([], config, 250)) == []
    # A sentence that alone exceeds the budget still has its batch.
    small = dataclasses.replace(config, batch_tokens=10)
    assert [batch.rows for batch in plan_batches([200, 3], small, 250)] == [1, 1]


def test_the_unknown_token_only_on_request():
    model, params = tiny()
    table = params["embedding"]["shared"]
    # A long row makes extreme logits: in some places it is the likeliest token by far.
    params = {**params, "embedding": {"shared": table.at[UNK].multiply(8.0)}}
    sources = sentences(4, seed=4)
    for suppress, expected in (((UNK,), False), ((), True)):
        decoded = decode_ids(params, model, sources, CONFIG, n_best=3, suppress=suppress)
        found = any(UNK in output.tokens for outputs in decoded for output in outputs)
        assert found == expected


def test_rows_that_stand_for_no_type_are_never_generated():
    model, params = tiny()
    table = params["embedding"]["shared"]
    config = dataclasses.replace(model.config, vocab_multiple=8)
    padded = Transformer(config, VOCAB, VOCAB)
    # As likely as the unknown token can be made: two rows beyond the thirty types.
    extra = jnp.concatenate([table, 8.0 * table[UNK : UNK + 1], 8.0 * table[UNK : UNK + 1]])
    params = {**params, "embedding": {"shared": extra}}
    decoded = decode_ids(params, padded, sentences(4, seed=4), CONFIG, n_best=3)
    assert max(max(output.tokens, default=0) for each in decoded for output in each) < VOCAB


def test_refuses_what_the_model_cannot_take():
    model, params = tiny()
    with pytest.raises(DecodingError, match="source 1 has 25 tokens; the model takes 1 to 24"):
        translate_ids(params, model, [[EOS], [5] * 24 + [EOS]], CONFIG)
    with pytest.raises(DecodingError, match="source 0 has 0 tokens"):
        translate_ids(params, model, [[]], CONFIG)
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, params)
    with pytest.raises(DecodingError, match="not numbers"):
        translate_ids(broken, model, [[5, EOS]], CONFIG)
    assert translate_ids(params, model, [], CONFIG) == []
