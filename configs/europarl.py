"""Europarl English to French: half a million sentences of parliament, for one GPU.

    flaxformer-mt train --config configs/europarl.py --workdir runs/europarl \\
        --config.data.folder=FOLDER
    flaxformer-mt average --workdir runs/europarl
    flaxformer-mt evaluate --workdir runs/europarl

FOLDER holds `train-500k` (500,000 pairs), `dev` (2,000) and `test` (3,000), each as `.en.xz` and
`.fr.xz`, from Europarl v7, which is part of the paper's English-French text. `dev` and `test` are
from the last quarter of 2000, which `train-500k` leaves out. FOLDER also needs WMT's test sets of
2013 and 2014, as `newstest2014.en-fr.en.xz` and `.fr.xz`.

`base`  the paper's base model and batch, with more dropout, a higher rate and fewer updates (ten
        epochs) for a seventieth of its text; sentences of at most 128 tokens

Cost: 6.6e16 FLOPs by formula; seven and a half minutes on one H100. Tokenised BLEU on newstest2014
is 28.5, where the paper's base has 38.1 (benchmarks/results/europarl_newstest2014.json, trained in
longer rows). At base's recorded rate, two CPU cores would take 31 hours. On 8 TPU v5e, `plan`
estimates 18.6 ms a step, 0.3 chip hours, and 1.8 GiB a chip.
"""

from ml_collections import ConfigDict

from flaxformer_mt.config import corpus, default_config

VARIANTS = ("base",)


def get_config(variant: str = "base") -> ConfigDict:
    variant = variant or "base"
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant '{variant}'; valid variants: {', '.join(VARIANTS)}")

    def files(name: str) -> ConfigDict:
        return corpus(src=f"{name}.en.xz", tgt=f"{name}.fr.xz")

    config = default_config()
    config.name = "Europarl en-fr base"
    config.model.dtype = "auto"
    config.model.dropout = 0.2

    config.data.tgt_lang = "fr"
    config.data.folder = "data/europarl"
    config.data.train.europarl = files("train-500k")
    config.data.valid = files("dev")
    config.data.test.europarl = files("test")
    config.data.test.newstest2013 = files("newstest2013.en-fr")
    config.data.test.newstest2014 = files("newstest2014.en-fr")
    config.data.vocabulary.size = 32_000
    config.data.batch.form = "pack"
    config.data.filter.max_length = 128

    config.training.steps = 7_500
    config.training.schedule.kind = "peak"
    config.training.schedule.peak = 8e-4
    config.training.schedule.warmup_steps = 1000
    config.training.validate_every = 1500
    config.training.validate_bleu = False
    config.training.best_metric = "loss"
    config.training.save_every = 500
    config.training.keep_for_average = 5
    return config
