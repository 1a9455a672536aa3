"""Your own parallel text: two files, one per side, and nothing else to set.

    flaxformer-mt train --config files --workdir runs/mine \\
        --config.data.train=train.en,train.de --config.data.valid=valid.en,valid.de

Without a variant, the amount of training text, measured when the run is created, sets the model,
its dropout, vocabulary, batches, steps and patience, and the run records them; `config --config
files --config.data.train=... --explain` says which and why. `--config.training.minutes=20` sets the
time that training may take on this machine instead of its steps. A variant fixes the sizes:

`tiny`   as for 270,000 tokens, both sides together: 2 + 2 layers of width 128, 6,000 steps
`small`  as for 6,000,000: 4 + 4 layers of width 288, 34,000 steps
`base`   as from 40,000,000 on: the paper's base model and recipe

Cost on two CPU cores: `tiny` 10 to 20 minutes, `small` days. The score depends on the text:
12,000 raw pairs of Multi30k gave 29.3 sacreBLEU on its test set.
"""

from ml_collections import ConfigDict

from flaxformer_mt.config import default_config
from flaxformer_mt.config.sizes import LITTLE, MUCH, TYPICAL, TextSize, sized

VARIANTS = {"tiny": TextSize(LITTLE), "small": TYPICAL, "base": TextSize(MUCH)}


def get_config(variant: str = "") -> ConfigDict:
    config = default_config()
    config.name = f"own text, {variant}" if variant else "own text"
    config.model.dtype = "auto"
    # The paper's penalty is for a model that is surer of itself than one of little text.
    config.decoding.length_choice = "validation"
    if not variant:
        config.sizes = "corpus"
    elif variant in VARIANTS:
        config.update_from_flattened_dict(sized(VARIANTS[variant]))
    else:
        raise ValueError(f"unknown variant '{variant}'; valid variants: {', '.join(VARIANTS)}")
    return config
