"""Tatoeba English to German: everyday sentences of some six words, often with several right
translations.

    flaxformer-mt train --config configs/tatoeba.py --workdir runs/tatoeba \\
        --config.data.folder=FOLDER
    flaxformer-mt average --workdir runs/tatoeba
    flaxformer-mt evaluate --workdir runs/tatoeba

FOLDER holds `train`, `dev` and `test-tatoeba-v2021-08-07`, each as `.en.xz` and `.de.xz`.
`train` has some 157,000 pairs (CC BY 2.0 FR), none of them in the other two.

Cost: two hours on two slow CPU cores (float32, 167 GFLOP/s; one device per core,
docs/performance.md). Score: 34.1 sacreBLEU on the test set's 17,565 sentences, 43.6 on the 1,585 of
`dev`. OPUS-MT, trained on a thousand times as much text, has 43.7 on the test set. By length: up to
ten words 39.4, 11 to 20 words 22.6, 21 to 30 words 6.8. Of the training pairs, 92.8% have at most
ten words and only 187 have 21 to 30 (counted by hand), and translations of longer sentences end
too early (at 0.91 and 0.66 of the references' length).

The variant `demo` is the model that comes with the package (`flaxformer-mt demo`): 2.8 million
parameters instead of 7, so that its weights take less than 6 MB in bfloat16.
"""

from ml_collections import ConfigDict

from flaxformer_mt.config import corpus, default_config


def get_config(variant: str = "") -> ConfigDict:
    if variant not in ("", "demo"):
        raise ValueError(f"unknown variant '{variant}'; the only one with a name is 'demo'")

    def files(name: str) -> ConfigDict:
        return corpus(src=f"{name}.en.xz", tgt=f"{name}.de.xz")

    config = default_config()
    config.name = "Tatoeba en-de"
    config.data.folder = "data/tatoeba"
    config.data.train.tatoeba = files("train")
    config.data.valid = files("dev")
    config.data.test.tatoeba_test_v2021_08_07 = files("test-tatoeba-v2021-08-07")

    config.model.dtype = "auto"
    config.model.encoder_layers = 3
    config.model.decoder_layers = 3
    config.model.d_model = 256
    config.model.d_ff = 1024
    config.model.num_heads = 4
    # Two hours on a CPU are some nine epochs. Other values weren't tried.
    config.model.dropout = 0.1

    config.data.vocabulary.size = 6000
    config.data.batch.tokens = 2048
    config.data.batch.max_shapes = 12

    config.training.steps = 9000
    config.training.schedule.kind = "peak"
    config.training.schedule.peak = 0.002
    config.training.schedule.warmup_steps = 1000
    config.training.validate_every = 1500
    config.training.save_every = 200
    config.training.keep_for_average = 10
    config.training.log_every = 100
    config.training.loss_chunk = 256

    if variant == "demo":
        config.name = "Tatoeba en-de, demo"
        config.model.decoder_layers = 2
        config.model.d_model = 192
        config.model.d_ff = 512
        config.model.d_k = config.model.d_v = 48
        config.data.vocabulary.size = 4000
        config.training.steps = 20_000
    return config
