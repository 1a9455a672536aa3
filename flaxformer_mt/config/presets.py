"""The paper's recipes, as changes to the defaults (its base model)."""

from typing import Literal

from ml_collections import ConfigDict

from flaxformer_mt.config.freeze import corpus, default_config

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
