"""WMT 2014 English to German, the paper's recipe (Vaswani et al., 2017, sections 5 and 6.1).

    flaxformer-mt train --config configs/wmt14_en_de.py:base --workdir runs/en-de \\
        --config.data.folder=FOLDER
    flaxformer-mt average --workdir runs/en-de
    flaxformer-mt evaluate --workdir runs/en-de

FOLDER holds train.en, train.de (about 4.5 million pairs), newstest2013.* and newstest2014.* (.en
and .de). `--config.data.train.wmt14.src=...` and so on name other files.

`base`  100,000 steps; the paper: 12 hours on 8 P100, 3.3e18 FLOPs, BLEU 27.3 on newstest2014
`big`   300,000 steps; the paper: 3.5 days on 8 P100, 2.3e19 FLOPs, BLEU 28.4

The paper's BLEU is tokenised, with compounds split; sacreBLEU of the same outputs is lower by about
1.5. Not yet trained by this project at full scale.
"""

from ml_collections import ConfigDict

from flaxformer_mt.config import corpus, default_config, paper_big

VARIANTS = ("base", "big")


def get_config(variant: str = "base") -> ConfigDict:
    variant = variant or "base"
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant '{variant}'; valid variants: {', '.join(VARIANTS)}")

    def files(name: str) -> ConfigDict:
        return corpus(src=f"{name}.en", tgt=f"{name}.de")

    # The defaults are the paper's base model, optimizer and schedule.
    config = default_config()
    config.name = f"WMT14 en-de {variant}"
    config.model.dtype = "bfloat16"

    config.data.folder = "data/wmt14_en_de"
    config.data.train.wmt14 = files("train")
    config.data.valid = files("newstest2013")
    config.data.test.newstest2014 = files("newstest2014")
    config.data.vocabulary.size = 37_000
    config.data.batch.tokens = 25_000

    if variant == "big":
        paper_big(config, dropout=0.3)
    return config
