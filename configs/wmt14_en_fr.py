"""WMT 2014 English to French, the paper's recipe (Vaswani et al., 2017, sections 5 and 6.1).

    flaxformer-mt train --config configs/wmt14_en_fr.py:base --workdir runs/en-fr \\
        --config.data.folder=FOLDER
    flaxformer-mt average --workdir runs/en-fr
    flaxformer-mt evaluate --workdir runs/en-fr

FOLDER holds train.en, train.fr (about 36 million pairs), newstest2013.* and newstest2014.* (.en and
.fr). `--config.data.train.wmt14.src=...` and so on name other files.

`base`  100,000 steps; the paper: BLEU 38.1 on newstest2014
`big`   300,000 steps, dropout 0.1; the paper: BLEU 41.8 (its text says 41.0)

The cost of a step is that of English to German. Not yet trained by this project at full scale.
"""

from ml_collections import ConfigDict

from flaxformer_mt.config import corpus, default_config, paper_big

VARIANTS = ("base", "big")


def get_config(variant: str = "base") -> ConfigDict:
    variant = variant or "base"
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant '{variant}'; valid variants: {', '.join(VARIANTS)}")

    def files(name: str) -> ConfigDict:
        return corpus(src=f"{name}.en", tgt=f"{name}.fr")

    # The defaults are the paper's base model, optimizer and schedule.
    config = default_config()
    config.name = f"WMT14 en-fr {variant}"
    config.model.dtype = "bfloat16"

    config.data.tgt_lang = "fr"
    config.data.folder = "data/wmt14_en_fr"
    config.data.train.wmt14 = files("train")
    config.data.valid = files("newstest2013")
    config.data.test.newstest2014 = files("newstest2014")
    config.data.vocabulary.size = 32_000
    config.data.batch.tokens = 25_000

    if variant == "big":
        paper_big(config, dropout=0.1)
    return config
