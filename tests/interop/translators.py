"""Translators with tiny random models, whose greedy outputs differ from sentence to sentence."""

import functools
from typing import Any

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.vocabulary import Vocabularies, train_pair
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.interop.weights import Weights, from_model
from flaxformer_mt.model.transformer import Transformer
from tests.decoding.runs import PAIRS
from tests.model.examples import random_params, tiny_config

LINES = [src for src, _ in PAIRS] + ["a big house", "dog", "the cat runs home and sees who sleeps"]


@functools.cache
def vocabularies(*, shared: bool) -> Vocabularies:
    return train_pair(PAIRS * 5, VocabularyConfig(size=60, shared=shared))


@functools.cache
def digits() -> Vocabularies:
    """One that knows digits alone: other text is a run of unknown characters."""
    texts = [f"{number} {number * 7}" for number in range(200)]
    return train_pair([(text, text) for text in texts], VocabularyConfig(size=40))


def translator(*, seed: int = 0, pair: Vocabularies | None = None, **changes: Any) -> Translator:
    """A model with these changes of its config and random weights: no bias 0 and no scale 1."""
    sizes = {"d_model": 16, "d_ff": 24, "num_heads": 2, "d_k": 8, "d_v": 8, "max_length": 40}
    config = tiny_config(**sizes | changes)
    pair = pair or vocabularies(shared=config.tie == "all")
    model = Transformer(config, pair.src.size, pair.tgt.size)
    params = random_params(model, seed, spread=0.4)
    settings = DecodingConfig(beam_size=2, max_extra_tokens=6, batch_tokens=512)
    return Translator(params, model, pair, settings, name="random")


def without_a_bias(translator: Translator) -> Weights:
    """A faulty `from_model`, which forgets a bias of the last layer."""
    weights = from_model(translator)
    weights["decoder/layers_1/feed_forward/b_out"][...] = 0
    return weights
