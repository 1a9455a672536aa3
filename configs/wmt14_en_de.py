"""WMT 2014 English to German, the paper's recipe (Vaswani et al., 2017, sections 5 and 6.1).

    flaxformer-mt train --config configs/wmt14_en_de.py:base --workdir runs/en-de \\
        --config.data.folder=FOLDER
    flaxformer-mt average --workdir runs/en-de
    flaxformer-mt evaluate --workdir runs/en-de

FOLDER holds train.en, train.de (about 4.5 million pairs), newstest2013.* and newstest2014.* (.en
and .de). `--config.data.train.wmt14.src=...` and so on name other files.

`base`  100,000 steps; the paper: 12 hours on 8 P100, 3.3e18 FLOPs, BLEU 27.3 on newstest2014
`big`   300,000 steps; the paper: 3.5 days on 8 P100, 2.3e19 FLOPs, BLEU 28.4
`base_tfds`, `big_tfds`  the same on `wmt_t2t_translate/de-en` of TensorFlow Datasets, which is
        closest to the paper's text: 4,592,289 pairs, newstest2013 and newstest2014

The paper's BLEU is tokenised, with compounds split; sacreBLEU of the same outputs is about 1.5
lower. Not yet trained by this project at full scale.
"""

from ml_collections import ConfigDict

from flaxformer_mt.config import wmt14_variant


def get_config(variant: str = "base") -> ConfigDict:
    return wmt14_variant(variant, tgt_lang="de", big_dropout=0.3)
