"""Configs against the paper (arXiv 1706.03762, sections 3 to 6)."""

import dataclasses

import pytest

from flaxformer_mt.config import ExperimentConfig, TrainingConfig, flatten, loss_chunk, read_config

# Table 3, row "base", and sections 5.1 to 5.4 and 6.1.
PAPER_BASE = {
    "model.encoder_layers": 6,
    "model.decoder_layers": 6,
    "model.d_model": 512,
    "model.d_ff": 2048,
    "model.num_heads": 8,
    "model.d_k": 64,
    "model.d_v": 64,
    "model.dropout": 0.1,
    "model.attention_dropout": 0.0,
    "model.ffn_dropout": 0.0,
    "model.norm": "post",
    "model.positions": "sinusoidal",
    "model.tie": "all",
    "data.vocabulary.size": 37_000,
    "data.vocabulary.shared": True,
    "data.vocabulary.kind": "bpe",
    "data.batch.tokens": 25_000,
    "training.steps": 100_000,
    "training.label_smoothing": 0.1,
    "training.schedule.kind": "paper",
    "training.schedule.factor": 1.0,
    "training.schedule.warmup_steps": 4000,
    "training.optimizer.beta1": 0.9,
    "training.optimizer.beta2": 0.98,
    "training.optimizer.epsilon": 1e-9,
    "training.optimizer.weight_decay": 0.0,
    "training.optimizer.clip_norm": 0.0,
    "training.optimizer.accumulation": 1,
    "training.optimizer.ema_decay": 0.0,
    "training.keep_for_average": 5,
    "decoding.beam_size": 4,
    "decoding.length_penalty": 0.6,
    "decoding.max_extra_tokens": 50,
}


def test_defaults_are_the_papers_base_model():
    defaults = flatten(ExperimentConfig())
    assert {key: defaults[key] for key in PAPER_BASE} == PAPER_BASE


@pytest.mark.parametrize(("language", "size"), [("de", 37_000), ("fr", 32_000)])
def test_wmt14_base_is_the_default_but_for_data_and_number_format(language, size):
    defaults = flatten(ExperimentConfig())
    config = flatten(read_config(f"wmt14_en_{language}:base"))
    changed = {key for key in config if config[key] != defaults.get(key)}
    recipe = {key for key in changed if not key.startswith("data.")}
    assert recipe == {"name", "model.dtype"}
    assert config["data.vocabulary.size"] == size
    assert config["data.batch.tokens"] == 25_000


@pytest.mark.parametrize(("language", "dropout"), [("de", 0.3), ("fr", 0.1)])
def test_wmt14_big_is_the_papers(language, dropout):
    """Table 3's, but for French dropout (section 6.1) and the mean of 20 checkpoints."""
    config, row = read_config(f"wmt14_en_{language}:big"), read_config("table3:big")
    assert config.model == dataclasses.replace(row.model, dropout=dropout)
    assert config.training == dataclasses.replace(row.training, keep_for_average=20)


# Section 6.3: "all other parameters remained unchanged from" the base translation model.
PARSING = {
    **{key: PAPER_BASE[key] for key in PAPER_BASE if key.startswith("training.optimizer.beta")},
    **{key: PAPER_BASE[key] for key in ("model.d_ff", "model.num_heads", "training.steps")},
    "model.encoder_layers": 4,
    "model.decoder_layers": 4,
    "model.d_model": 1024,
    "model.d_k": 128,
    "decoding.beam_size": 21,
    "decoding.length_penalty": 0.3,
    "decoding.max_ratio": 1.0,
    "decoding.max_extra_tokens": 300,
}


@pytest.mark.parametrize(("variant", "types"), [("wsj_only", 16_000), ("semi_supervised", 32_000)])
def test_parsing_has_the_paper_s_settings(variant, types):
    config = flatten(read_config(f"parsing:{variant}"))
    expected = PARSING | {"data.vocabulary.size": types}
    assert {key: config[key] for key in expected} == expected


@pytest.mark.parametrize("variant", ["wsj_only", "semi_supervised", "craft"])
def test_every_parse_that_may_be_needed_fits(variant):
    config = read_config(f"parsing:{variant}")
    # A tree has its words and two tokens for each constituent; 300 more than the words suffice.
    longest = config.data.filter.max_length
    assert longest + config.decoding.max_extra_tokens <= config.model.max_length
    assert {"(NP", ")NP", "(WHADJP"} <= set(config.data.vocabulary.tgt_words)
    names = {corpus.name for corpus in config.data.train}
    assert ("highconf" in names) == (variant == "semi_supervised") and "treebank" in names


def test_the_default_loss_has_one_slice_on_a_gpu():
    default = TrainingConfig()
    training = TrainingConfig(loss_chunk=128)
    for platform, positions in {"cpu": 4096, "gpu": 0, "tpu": 4096}.items():
        assert loss_chunk(default, platform) == positions
        assert loss_chunk(training, platform) == 128
