"""The paper's recipes, as changes to the defaults (its base model), and settings by corpus size."""

from typing import Any, Literal

from ml_collections import ConfigDict

from flaxformer_mt.config.freeze import corpus, default_config
from flaxformer_mt.config.languages import written_script

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


def sized(
    pairs: int, languages: tuple[str, str] = ("", ""), *, steps: int | None = None
) -> dict[str, Any]:
    """Settings for a training corpus of this many pairs in two languages, by dotted key.

    Below 50,000 pairs, a model that two CPU cores train in minutes; from a million on, the paper's
    base model. The vocabulary's size gives way to text that yields fewer or needs more types.
    `steps`, if given, replaces the number that the text would have; warm-up, validation and saving
    follow it.
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
    return settings if steps is None else settings | _lasting(steps, settings)


def _lasting(steps: int, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that hang on `steps`: each in proportion, but a warm-up isn't longer."""
    before = settings.get("training.steps", 100_000)
    warmup = settings.get("training.schedule.warmup_steps", 4000)
    validate_every = settings.get("training.validate_every", 1500)
    save_every = settings.get("training.save_every", 1500)
    return {
        "training.steps": steps,
        "training.schedule.warmup_steps": max(1, min(warmup, warmup * steps // before)),
        "training.validate_every": max(1, validate_every * steps // before),
        "training.save_every": max(1, save_every * steps // before),
    }


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
