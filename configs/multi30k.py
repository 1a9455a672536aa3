"""Multi30k, English to German or French: 29,000 image captions, the corpus for a laptop.

    flaxformer-mt train --config configs/multi30k.py:tiny --workdir runs/multi30k \\
        --config.data.folder=FOLDER/tok
    flaxformer-mt average --workdir runs/multi30k
    flaxformer-mt evaluate --workdir runs/multi30k

`tiny`      Transformer-Tiny of Wu et al. (ACL 2021) on lower-cased, normalised, Moses-tokenised
            text (`data/task1/tok` of the multi30k/dataset repository), to German. Published: 41.02
            BLEU.
`tiny_fr`   the same to French. One seed in bfloat16 reached 62.1 on the test set, 60.3 on the
            validation set. Published: about 61.8, not checked against the paper.
`tiny_raw`  the model of `tiny` on the cased raw text (`data/task1/raw`), scored by sacreBLEU: half
            the updates, with bfloat16 operands.
`many`      one model of the six directions between English, German and French, on the text of
            `tiny`: a tag before a source, such as `<2fr>`, asks for its target language.
`many_wide` the same at twice the width.
`en_de`     and `en_fr`, `de_en`, `de_fr`, `fr_en`, `fr_de`: one of these directions alone, for
            comparison. Each takes an eighth of the updates of `tiny`, and `many` six times as many
            as one of them, so that both read each pair as often.

Cost on two CPU cores: `tiny` takes 16,000 steps of about 0.6 s, two and a half hours if the machine
is otherwise idle. With `--config.model.dtype=bfloat16`, on a busy CPU with bfloat16 products, it
took 64 minutes, and 100 on one core. `tiny_raw` takes 8,000 steps of 0.4 s, an hour; the recorded
run, on a busy CPU, took 1.7 hours.

BLEU of `tiny` with the published run's length penalty, for five seeds, all but the first in
bfloat16: 40.7, 41.1, 41.4, 40.3 and 41.2 on the test set (mean 40.93), 41.4, 41.7, 42.2, 42.1 and
42.2 on the validation set. The validation set had first favoured the paper's penalty with alpha 1.6
(41.6 there), but with it the first seed scores 39.7 on the test set. The published penalty was
chosen with that known, so these and 41.02 are comparable, but the choice wasn't blind. `tiny_raw`
reached 39.3 sacreBLEU on the test set and 40.9 on the validation set.
"""

import itertools

from ml_collections import ConfigDict

from flaxformer_mt.config import corpus, default_config

TOKENIZED, RAW = "{split}.lc.norm.tok.{lang}.xz", "{split}.{lang}.gz"
# Each variant's files and its source and target language.
VARIANTS = {
    "tiny": (TOKENIZED, "en", "de"),
    "tiny_fr": (TOKENIZED, "en", "fr"),
    "tiny_raw": (RAW, "en", "de"),
}
DIRECTIONS = tuple(itertools.permutations(("en", "de", "fr"), 2))
SINGLE = {f"{src}_{tgt}": (TOKENIZED, src, tgt) for src, tgt in DIRECTIONS}
MANY = ("many", "many_wide")


def get_config(variant: str = "tiny") -> ConfigDict:
    variant = variant or "tiny"
    if variant in MANY:
        return _many(wide=variant == "many_wide")
    if variant in SINGLE:
        return _at_an_eighth(_of_one_direction("", *SINGLE[variant]))
    if variant not in VARIANTS:
        known = ", ".join((*VARIANTS, *MANY, *SINGLE))
        raise ValueError(f"unknown variant '{variant}'; valid variants: {known}")

    config = _of_one_direction(variant.removesuffix("_fr"), *VARIANTS[variant])
    if variant == "tiny_raw":
        # About an hour on a laptop instead of two and a half.
        config.training.steps = 8000
        config.model.dtype = "auto"
    return config


def _of_one_direction(name: str, files: str, src: str, tgt: str) -> ConfigDict:
    config = _tiny()
    config.name = f"Multi30k {src}-{tgt} {name}".rstrip()
    config.data.src_lang = src
    config.data.tgt_lang = tgt
    config.data.tokenized = files == TOKENIZED
    config.data.train.multi30k = _text("train", src, tgt, files)
    config.data.valid = _text("val", src, tgt, files)
    config.data.test.test_2016_flickr = _text("test_2016_flickr", src, tgt, files)
    return config


def _many(*, wide: bool) -> ConfigDict:
    config = _at_an_eighth(_tiny())
    config.name = f"Multi30k, six directions{', twice as wide' if wide else ''}"
    config.data.tokenized = True
    for src, tgt in DIRECTIONS:
        name = f"{src}_{tgt}"
        config.data.train[name] = _tagged("train", src, tgt)
        config.data.valid_sets[name] = _tagged("val", src, tgt)
        config.data.test[f"test_2016_flickr_{name}"] = _tagged("test_2016_flickr", src, tgt)

    schedule = config.training.schedule
    for group, setting in (
        (config.training, "steps"),
        (config.training, "validate_every"),
        (config.training, "save_every"),
        (schedule, "warmup_steps"),
    ):
        group[setting] *= len(DIRECTIONS)
    if wide:
        config.model.d_model *= 2
        config.model.d_ff *= 2
        config.model.d_k *= 2
        config.model.d_v *= 2
        # Half of what the paper's rates would be, which fall with the square root of the width
        # (section 5.3). With 0.0028 the model stayed below 10 BLEU in every direction.
        schedule.peak = 0.0014
    return config


def _at_an_eighth(config: ConfigDict) -> ConfigDict:
    """The recipe at an eighth of its updates, saved as often for its length."""
    config.model.dtype = "auto"
    config.training.steps //= 8
    config.training.schedule.warmup_steps //= 8
    config.training.save_every //= 8
    config.training.validate_every = 32 * config.training.save_every
    return config


def _text(split: str, src: str, tgt: str, files: str) -> ConfigDict:
    return corpus(src=files.format(split=split, lang=src), tgt=files.format(split=split, lang=tgt))


def _tagged(split: str, src: str, tgt: str) -> ConfigDict:
    text = _text(split, src, tgt, TOKENIZED)
    text.tag, text.src_lang, text.tgt_lang = f"<2{tgt}>", src, tgt
    return text


def _tiny() -> ConfigDict:
    config = default_config()
    config.model.encoder_layers = 4
    config.model.decoder_layers = 4
    config.model.d_model = 128
    config.model.d_ff = 256
    config.model.num_heads = 4
    config.model.d_k = 32
    config.model.d_v = 32
    config.model.dropout = 0.3

    config.data.folder = "data/multi30k"
    config.data.vocabulary.size = 10_000
    # Half the batch of the published run, and twice its updates at a rate to match: learns more
    # from the same number of sentences.
    config.data.batch.tokens = 4096
    config.data.batch.max_shapes = 16

    config.training.steps = 16_000
    config.training.schedule.kind = "peak"
    config.training.schedule.peak = 0.004
    config.training.schedule.warmup_steps = 2000
    config.training.validate_every = 500
    config.training.save_every = 120
    config.training.keep_for_average = 10
    config.training.log_every = 100
    config.training.loss_chunk = 256

    config.decoding.beam_size = 5
    # As in the published run, to be compared with it; not the best on the validation set (above).
    config.decoding.length_norm = "average"
    config.decoding.length_penalty = 1.0
    return config
