"""A small model with random weights, and sentences for it."""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from flaxformer_mt.config import DecodingConfig, ModelConfig
from flaxformer_mt.data.vocabulary import EOS, UNK
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
