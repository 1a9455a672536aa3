"""The paper's recipes, as changes to the defaults (its base model), and settings by corpus size
and length of training."""

import dataclasses
import math
from typing import Any, Literal

from ml_collections import ConfigDict

from flaxformer_mt.config.freeze import corpus, default_config
from flaxformer_mt.config.languages import written_script
from flaxformer_mt.config.schema import ExperimentConfig, ModelConfig

TYPICAL = 300_000  # pairs that sizes are shown for as long as no corpus is named
_LITTLE, _MUCH = 50_000, 1_000_000
# What docs/data.md advises for Chinese and Japanese.
_OF_MANY_CHARACTERS = {"Hani", "Hans", "Hant", "Jpan"}
_MANY_CHARACTERS: dict[str, Any] = {
    "data.vocabulary.character_coverage": 0.9995,
    "data.vocabulary.byte_fallback": True,
    "data.vocabulary.shared": False,
    "model.tie": "target",
}
# Each batch shape is compiled once. More of them fit pairs' lengths better and save padding in
# every step: worth it in a long training only.
MOST_SHAPES = 16
# One shape for everything is as long as the longest pair: of the text below, two thirds to five
# sixths of it would be padding. Two leave 38 to 48%.
FEWEST_SHAPES = 2
# N shapes leave about this / N as much padding as there are tokens: 1.0 to 1.3 for the built-in
# grammar, Multi30k and Tatoeba, from two to sixteen shapes.
_PADDING = 1.1
_FULL = 0.8  # of a batch's positions are tokens, about
# What a CPU computes in the time in which it compiles a step: 7 to 10 seconds of one core, from two
# layers a side to base, at 90 to 230 GFLOP/s. An accelerator computes far more, but compiles all
# shapes at once, and its trainings are long: they get the most shapes anyway.
_COMPILING = 8e11  # FLOPs


def sized(pairs: int, languages: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """Settings for a training corpus of this many pairs in two languages, by dotted key.

    Below 50,000 pairs, a model that two CPU cores train in minutes; from a million on, the paper's
    base model. The vocabulary's size gives way to text that yields fewer or needs more types.
    """
    settings: dict[str, Any] = {"data.vocabulary.soft_size": True}
    if pairs < _LITTLE:
        settings |= _small(pairs)
    elif pairs < _MUCH:
        settings |= _medium(pairs)
    if any(written_script(code) in _OF_MANY_CHARACTERS for code in languages):
        settings |= _MANY_CHARACTERS
        if pairs < _MUCH:
            settings["data.vocabulary.size"] = 4000 if pairs < _LITTLE else 16_000
    return settings


def _small(pairs: int) -> dict[str, Any]:
    """For fewer than 50,000 pairs."""
    return {
        **_model(layers=2, width=128, heads=4),
        # 20,000 pairs, each seen five times: 90 BLEU without dropout, 87 with 0.1.
        "model.dropout": 0.1 if pairs < 10_000 else 0.0,
        "data.vocabulary.size": min(2000, max(500, pairs // 2)),
        "data.batch.tokens": 2048,
        "data.batch.max_shapes": 6,
        "training.steps": max(1000, pairs // 20),
        "training.schedule.kind": "peak",
        "training.schedule.peak": 0.0035,
        "training.schedule.warmup_steps": 300,
        "training.validate_every": 500,
        "training.save_every": 50,
        "training.patience": 4,
        "training.loss_chunk": 0,
    }


def _medium(pairs: int) -> dict[str, Any]:
    """For 50,000 pairs or more, but fewer than a million."""
    steps = min(max(5000, pairs // 10), 20_000)
    return {
        **_model(layers=4, width=256, heads=4),
        "model.dropout": 0.2,
        "data.vocabulary.size": 8000,
        "data.batch.tokens": 4096 if pairs < 200_000 else 8192,
        "data.batch.max_shapes": 8,
        "training.steps": steps,
        "training.schedule.kind": "peak",
        "training.schedule.peak": 0.002,
        "training.schedule.warmup_steps": steps // 10,
        "training.validate_every": 500,
        "training.save_every": 250,
        "training.patience": 10,
        "training.loss_chunk": 1024,
    }


def _model(*, layers: int, width: int, heads: int) -> dict[str, Any]:
    """A model of the paper's proportions."""
    return {
        "model.encoder_layers": layers,
        "model.decoder_layers": layers,
        "model.d_model": width,
        "model.d_ff": 4 * width,
        "model.num_heads": heads,
        "model.d_k": width // heads,
        "model.d_v": width // heads,
    }


WMT14_VARIANTS = ("base", "big", "base_tfds", "big_tfds")
# The nearest to the paper's: tensor2tensor's own selection is only for German. Splits by file
# names.
TFDS_SETS = {"de": "wmt_t2t_translate/de-en", "fr": "wmt14_translate/fr-en"}
TFDS_SPLITS = {"train": "train", "newstest2013": "validation", "newstest2014": "test"}


def paper_big(config: ConfigDict, *, dropout: float) -> None:
    """The big model and its training (Table 3, section 6.1), in place; dropout 0.3, French 0.1."""
    config.model.d_model = 1024
    config.model.d_ff = 4096
    config.model.num_heads = 16
    config.model.dropout = dropout
    config.training.steps = 300_000
    # A checkpoint every ten minutes of the paper's machine, the last 20 averaged.
    config.training.save_every = 600
    config.training.validate_every = 1200
    config.training.keep_for_average = 20


def paper_wmt14(
    tgt_lang: Literal["de", "fr"], *, text: Literal["files", "tfds"] = "files"
) -> ConfigDict:
    """The base model on WMT 2014 from English, from files or TensorFlow Datasets (section 5.1)."""
    config = default_config()
    config.name = f"WMT14 en-{tgt_lang} base"
    config.model.dtype = "bfloat16"

    config.data.tgt_lang = tgt_lang
    config.data.folder = f"data/wmt14_en_{tgt_lang}"
    corpora = {}
    for name, split in TFDS_SPLITS.items():
        if text == "tfds":
            path = TFDS_SETS[tgt_lang]
            corpora[name] = corpus(kind="tfds", path=path, split=split, src="en", tgt=tgt_lang)
        else:
            corpora[name] = corpus(src=f"{name}.en", tgt=f"{name}.{tgt_lang}")
    config.data.train.wmt14 = corpora["train"]
    config.data.valid = corpora["newstest2013"]
    config.data.test.newstest2014 = corpora["newstest2014"]
    config.data.vocabulary.size = {"de": 37_000, "fr": 32_000}[tgt_lang]
    config.data.batch.tokens = 25_000
    return config


def wmt14_variant(variant: str, *, tgt_lang: Literal["de", "fr"], big_dropout: float) -> ConfigDict:
    """The variants of `configs/wmt14_en_*.py`."""
    variant = variant or "base"
    if variant not in WMT14_VARIANTS:
        known = ", ".join(WMT14_VARIANTS)
        raise ValueError(f"unknown variant '{variant}'; valid variants: {known}")
    size, _, text = variant.partition("_")
    config = paper_wmt14(tgt_lang, text="tfds" if text == "tfds" else "files")
    config.name = f"WMT14 en-{tgt_lang} {size}"
    if size == "big":
        paper_big(config, dropout=big_dropout)
    return config


def fitting_shapes(config: ExperimentConfig) -> int:
    """The number of shapes that costs a training least, compiling and padding together.

    With N shapes, `tokens * _PADDING / N` positions are padding, and compiling takes as long as
    `N * _COMPILING / flops` positions. The sum is least where both are equal.
    """
    training = config.training
    tokens = 2 * config.data.batch.tokens * _FULL * training.steps
    flops = _flops(config.model, config.data.vocabulary.size)
    shapes = math.sqrt(_PADDING * tokens * flops / _COMPILING)
    return max(FEWEST_SHAPES, min(MOST_SHAPES, round(shapes)))


def with_fitting_shapes(
    config: ExperimentConfig, recorded: ExperimentConfig | None
) -> ExperimentConfig:
    """The config with `data.batch.max_shapes` of 0 settled: as `recorded`, or by the length of the
    training."""
    batch = config.data.batch
    if batch.max_shapes:
        return config
    shapes = recorded.data.batch.max_shapes if recorded else fitting_shapes(config)
    batch = dataclasses.replace(batch, max_shapes=shapes)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, batch=batch))


def _flops(model: ModelConfig, types: int) -> float:
    """Of training on one position of either side, the mean of both: six for each parameter that it
    meets (two forward, four backward)."""
    attention = 2 * model.d_model * model.num_heads * (model.d_k + model.d_v)
    feed_forward = 2 * model.d_model * model.d_ff
    source = model.encoder_layers * (attention + feed_forward)
    target = model.decoder_layers * (2 * attention + feed_forward) + model.d_model * types
    return 6 * (source + target) / 2
