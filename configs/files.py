"""Your own parallel text: two files, one a side, and nothing else to know.

    flaxformer-mt train --config files --workdir runs/mine \\
        --config.data.train.mine.src=train.en --config.data.train.mine.tgt=train.de \\
        --config.data.valid.src=valid.en --config.data.valid.tgt=valid.de

`small`  up to a few hundred thousand pairs: 4 + 4 layers of width 256, 8,000 types, early stopping
`base`   from a million pairs on: the paper's base model and recipe

Cost of `small`: some hours on a CPU for 100,000 pairs. The score depends on the text.
"""

from ml_collections import ConfigDict

from flaxformer_mt.config import default_config

VARIANTS = ("small", "base")


def get_config(variant: str = "small") -> ConfigDict:
    variant = variant or "small"
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant '{variant}'; valid variants: {', '.join(VARIANTS)}")
    config = default_config()
    config.name = f"own text, {variant}"
    config.model.dtype = "auto"
    if variant == "base":
        return config

    config.model.encoder_layers = 4
    config.model.decoder_layers = 4
    config.model.d_model = 256
    config.model.d_ff = 1024
    config.model.num_heads = 4
    config.model.dropout = 0.2

    config.data.vocabulary.size = 8000
    config.data.batch.tokens = 8192
    config.data.batch.max_shapes = 8

    config.training.steps = 20_000
    config.training.schedule.kind = "peak"
    config.training.schedule.peak = 0.002
    config.training.schedule.warmup_steps = 2000
    config.training.validate_every = 500
    config.training.save_every = 250
    config.training.patience = 10
    config.training.loss_chunk = 1024
    return config
