"""Your own parallel text: two files, one per side, and nothing else to set.

    flaxformer-mt train --config files --workdir runs/mine \\
        --config.data.train=train.en,train.de --config.data.valid=valid.en,valid.de

Without a variant, the number of training pairs, counted when the run is created, sets the model,
vocabulary, batches, steps and patience, and the run records them. A variant fixes them:

`tiny`   as for 20,000 pairs: 2 + 2 layers of width 128, 2,000 types, 1,000 steps
`small`  as for a few hundred thousand: 4 + 4 layers of width 256, 8,000 types, 20,000 steps
`base`   as from a million on: the paper's base model and recipe

Cost on two CPU cores: `tiny` minutes, `small` a day. The score depends on the text: 20,000 pairs of
the built-in grammar give 90 BLEU on held-out sentences.
"""

from ml_collections import ConfigDict

from flaxformer_mt.config import default_config, sized

VARIANTS = {"tiny": 20_000, "small": 300_000, "base": 1_000_000}


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
