"""WMT 2014 English to French, the paper's recipe (Vaswani et al., 2017, sections 5 and 6.1).

    flaxformer-mt train --config configs/wmt14_en_fr.py:base --workdir runs/en-fr \\
        --config.data.folder=FOLDER
    flaxformer-mt average --workdir runs/en-fr
    flaxformer-mt evaluate --workdir runs/en-fr

FOLDER holds train.en, train.fr (about 36 million pairs), newstest2013.* and newstest2014.* (.en and
.fr). `--config.data.train.wmt14.src=...` and so on name other files.

`base`  100,000 steps; the paper: BLEU 38.1 on newstest2014
`big`   300,000 steps, dropout 0.1; the paper: BLEU 41.8 (its text says 41.0)
`base_tfds`, `big_tfds`  the same on `wmt14_translate/fr-en` of TensorFlow Datasets

A step costs the same as for English to German. Not yet trained by this project at full scale.
"""

from ml_collections import ConfigDict

from flaxformer_mt.config import wmt14_variant


def get_config(variant: str = "base") -> ConfigDict:
    return wmt14_variant(variant, tgt_lang="fr", big_dropout=0.1)
