"""Decoding with a cache, one position at a time, against the whole decoder at once."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.decoding.run.programs import suited
from flaxformer_mt.model.embedding import CHUNK
from flaxformer_mt.model.parameters import variables_for_steps
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.rundir.digests import flatten_paths
from tests.model.examples import (
    VOCAB,
    build,
    call,
    hidden_of,
    pack,
    random_params,
    stack_layers,
    tiny_config,
)

ROWS, BEAMS, SRC_LENGTH, TGT_LENGTH = 2, 3, 5, 6


def sentences(seed=0):
    """Sources of 5 and 3 tokens, and a different target for every beam."""
    rng = np.random.default_rng(seed)
    src = [rng.integers(1, VOCAB, length).tolist() for length in (SRC_LENGTH, 3)]
    return src, rng.integers(1, VOCAB, (ROWS, BEAMS, TGT_LENGTH), np.int32)


def start(model, params, src, length=TGT_LENGTH):
    rows = pack([[(tokens, [])] for tokens in src], SRC_LENGTH, 1)
    of_src = {"src_segment_ids": rows.src_segment_ids, "src_positions": rows.src_positions}
    encoded = call(model, params, rows.src, **of_src, dropout_key=None, method="encode")
    form = {"beams": BEAMS, "length": length, "method": "start_cache"}
    return call(model, params, encoded, rows.src_segment_ids, **form)


def whole_logits(model, params, src, tgt):
    """The logits of every beam from the full decoder, each beam a row with a copy of its source."""
    pairs = [[(src[row], tgt[row, beam].tolist())] for row in range(ROWS) for beam in range(BEAMS)]
    hidden = hidden_of(model, params, pack(pairs, SRC_LENGTH, TGT_LENGTH))
    logits = call(model, params, hidden, method="logits")
    return np.asarray(logits).reshape(ROWS, BEAMS, TGT_LENGTH, -1)


def step(model, params, tokens, index, cache):
    return call(model, params, tokens, jnp.int32(index), cache, method="decode_step")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "pre", "positions": "learned", "tie": "target", "scan_layers": True},
        {"positions": "learned", "tie": "none"},
        {"activation": "silu", "attention_bias": True, "logits_bias": True, "scan_layers": True},
        {"dtype": "bfloat16"},
    ],
    ids=str,
)
def test_steps_equal_the_whole(options):
    model, params = build(tiny_config(**options))
    unrolled_model, unrolled = build(tiny_config(**options | {"scan_layers": False}))
    params = stack_layers(unrolled) if "scan_layers" in options else params
    tolerance = 0.05 if "dtype" in options else 2e-5
    src, tgt = sentences()
    expected = whole_logits(unrolled_model, unrolled, src, tgt)
    cache = start(model, params, src)
    for index in range(TGT_LENGTH):
        logits, cache = step(model, params, tgt[:, :, index], index, cache)
        assert logits.dtype == jnp.float32
        np.testing.assert_allclose(logits, expected[:, :, index], atol=tolerance, rtol=0)


@pytest.mark.parametrize(
    "options",
    [
        {"tie": "all"},
        {"tie": "target", "positions": "learned", "scan_layers": True},
        {"tie": "none", "attention_bias": True, "logits_bias": True},
    ],
    ids=str,
)
def test_kernels_that_are_rounded_beforehand_give_the_same_steps(options):
    """To the bit. The table that tokens are looked up in isn't rounded."""
    model, params = build(tiny_config(dtype="bfloat16", **options))
    variables = variables_for_steps(params, model.config)
    of_decoder = flatten_paths(variables["params"]["decoder"])
    kernels = {name for name, leaf in of_decoder.items() if leaf.dtype == "bfloat16"}
    # Biases and norms alone stay.
    others = {name.rpartition("/")[2] for name in of_decoder.keys() - kernels}
    assert kernels and all("bias" in name or name in ("b_in", "b_out", "scale") for name in others)
    src, tgt = sentences()
    cache = start(model, params, src)
    apply = jax.jit(functools.partial(model.apply, method="decode_step"))
    for index in range(TGT_LENGTH):
        tokens = tgt[:, :, index]
        logits, _ = apply(variables, tokens, jnp.int32(index), cache)
        expected, cache = apply({"params": params}, tokens, jnp.int32(index), cache)
        np.testing.assert_array_equal(logits, expected)
    wide = dataclasses.replace(model.config, dtype="float32")
    assert variables_for_steps(params, wide) == {"params": params}


def test_a_cpu_neither_updates_nor_converts_a_cache_in_bfloat16():
    """XLA's CPU backend has no bfloat16 update: it would convert the whole cache at every step."""
    model, params = build(tiny_config(dtype="bfloat16"))
    _, (model,) = suited((params,), (model,), "cpu")
    cache = start(model, params, sentences()[0])
    form = ",".join(map(str, cache["self"]["layers_0"]["key"].shape))
    jitted = jax.jit(functools.partial(model.apply, method="decode_step"))
    lowered = jitted.lower({"params": params}, np.ones((ROWS, BEAMS), np.int32), 1, cache)
    text = lowered.compile().as_text()
    assert f"f32[{form}]" in text and f"bf16[{form}]" not in text


def test_a_table_of_whole_chunks_is_read_in_place():
    """On a CPU. What suits a TPU's search would have it transposed at each step."""
    model = Transformer(tiny_config(vocab_multiple=CHUNK), 8 * CHUNK, 8 * CHUNK)
    params = random_params(model, 0, spread=0.3)
    hidden = np.ones((1, 1, model.config.d_model), np.float32)
    logits = jax.jit(lambda params: model.apply({"params": params}, hidden, method="logits"))
    read = logits.lower(params).compile().cost_analysis()["bytes accessed"]
    assert read < 1.5 * params["embedding"]["shared"].nbytes


def test_a_cache_longer_than_the_learned_positions_is_refused():
    model, params = build(tiny_config(positions="learned", max_length=TGT_LENGTH - 1))
    with pytest.raises(ValueError, match="model.max_length = 5"):
        cache = start(model, params, sentences()[0])
        step(model, params, np.ones((ROWS, BEAMS), np.int32), 0, cache)
