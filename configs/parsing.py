"""English constituency parsing, the paper's Table 4: sentences to linearised trees.

    flaxformer-mt trees linearize TREES --output-src FOLDER/train.src --output-tgt FOLDER/train.tgt
    flaxformer-mt train --config configs/parsing.py:wsj_only --workdir runs/wsj \\
        --config.data.folder=FOLDER
    flaxformer-mt translate --workdir runs/wsj --input FOLDER/test.src --output test.out
    flaxformer-mt trees rebuild FOLDER/test.src test.out --output test.trees
    flaxformer-mt trees score GOLD test.trees

FOLDER holds train, valid and test, each as .src and .tgt (docs/parsing.md).

`wsj_only`         about 40,000 sentences of the Wall Street Journal, sections 2 to 21, validated on
                   section 22; the paper: F1 91.3 on section 23
`semi_supervised`  these and 17 million automatically parsed sentences (highconf.src,
                   highconf.tgt); the paper: F1 92.7
`craft`            a small model for a treebank of some 20,000 sentences, such as CRAFT's

The paper gives 4 layers, d_model 1024, a vocabulary of 16,000 or 32,000, beam 21, length penalty
0.3 and outputs of at most the input's length + 300. Everything else is as in its base model, except
dropout and learning rate, which the authors chose on section 22. The paper doesn't give their
values; here they, and the warm-up, come from the authors' tensor2tensor
(`transformer_parsing_base`, `_big`). Nor does the paper give the number of steps.

`craft` generates only trees (`decoding.outputs`) and needs `trees linearize --leaves words`. In 90
minutes on one CPU core, it reaches F1 76.1 on CRAFT's 2,780 development trees. An earlier run had
72.3 after 14,000 steps and 74.7 after 20,000. With tags as leaves, F1 was 36.2 after 75 minutes,
because the model lost count of words: 85% of leaves 0 to 4 had their word's tag, but only 27% of
leaves 25 to 29. With XX and an unrestricted search, F1 was 27.7 after 9,000 steps, and 2,038
outputs were malformed. After 500 steps, `source_gain` was 0.63 with words, 0.065 with tags and
0.007 with XX (one seed each, by hand). This project hasn't trained the other two variants: the
paper's treebank needs a licence.
"""

from ml_collections import ConfigDict

from flaxformer_mt.config import corpus, default_config
from flaxformer_mt.parsing.linearization import penn_tokens

VARIANTS = ("wsj_only", "semi_supervised", "craft")


def get_config(variant: str = "wsj_only") -> ConfigDict:
    variant = variant or "wsj_only"
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant '{variant}'; valid variants: {', '.join(VARIANTS)}")

    def files(name: str) -> ConfigDict:
        return corpus(src=f"{name}.src", tgt=f"{name}.tgt")

    config = default_config()
    config.name = f"Parsing, {variant}"
    config.data.tgt_lang = "trees"
    # The text is split into words; BLEU, where it is asked for, is of the target's tokens.
    config.data.tokenized = True
    config.data.folder = "data/parsing"
    config.data.train.treebank = files("train")
    config.data.valid = files("valid")
    config.data.test.test = files("test")

    # A bracket with its label is one type, never split and never unknown: the target's vocabulary
    # is its words. So the source keeps one of its own, in which "(NP" is no symbol.
    config.data.vocabulary.shared = False
    config.data.vocabulary.tgt_types = "words"
    config.data.vocabulary.tgt_words = penn_tokens()
    config.model.tie = "target"
    # In training trees longer than 512 tokens are left out; sentences of any length are parsed.
    config.model.max_length = 1024
    config.data.filter.max_length = 512

    # BLEU of linearised trees says little.
    config.training.validate_bleu = False
    config.training.best_metric = "loss"

    config.decoding.beam_size = 21
    config.decoding.length_penalty = 0.3
    config.decoding.max_extra_tokens = 300
    if variant == "craft":
        _small(config)
        return config

    config.model.encoder_layers = 4
    config.model.decoder_layers = 4
    config.model.d_model = 1024
    config.model.d_k = 128
    config.model.d_v = 128
    config.model.dtype = "bfloat16"
    config.training.schedule.factor = 0.5
    if variant == "wsj_only":
        config.data.vocabulary.size = 16_000
        config.model.dropout = 0.2
        config.model.attention_dropout = 0.2
        config.training.schedule.warmup_steps = 16_000
    else:
        config.data.train.highconf = files("highconf")
        config.data.vocabulary.size = 32_000
        config.model.dropout = 0.1
        config.training.schedule.warmup_steps = 4000
    return config


def _small(config: ConfigDict) -> None:
    """The paper's 4 layers, of a width that two CPU cores train, in place."""
    config.model.encoder_layers = 4
    config.model.decoder_layers = 4
    config.model.d_model = 192
    config.model.d_ff = 384
    config.model.num_heads = 4
    config.model.d_k = 48
    config.model.d_v = 48
    config.model.dropout = 0.1

    # Leaves are the words themselves: a search of trees allows only the word that comes next.
    config.data.vocabulary.shared = True
    config.data.vocabulary.byte_fallback = True
    config.data.vocabulary.tgt_types = "brackets"
    config.data.vocabulary.tgt_words = tuple(token for token in penn_tokens() if token[0] in "()")
    config.data.vocabulary.size = 4000
    config.model.tie = "all"
    # Two trees in a thousand are longer; rows of twice that would make batches of twice the size.
    config.data.filter.max_length = 256
    config.data.batch.tokens = 1024
    config.data.batch.multiple = 4

    # Pre-norm bears a high learning rate early, and the training is short.
    config.model.norm = "pre"
    config.training.steps = 32_000
    config.training.label_smoothing = 0.0
    config.training.schedule.kind = "peak"
    config.training.schedule.peak = 0.002
    config.training.schedule.warmup_steps = 500
    config.training.validate_every = 2000
    config.training.save_every = 250
    config.training.keep_for_average = 10
    config.training.loss_chunk = 0
    config.decoding.outputs = "trees"
    # A beam's cache holds every position that an output may have; 300 more are rarely needed.
    config.decoding.max_ratio = 3.0
    config.decoding.max_extra_tokens = 20
    config.decoding.beam_size = 4
