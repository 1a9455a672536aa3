"""`configs/parsing.py` against what the paper's section 6.3 tells of Table 4."""

from __future__ import annotations

import pytest

from flaxformer_mt.config import ExperimentConfig, flatten, load_config


@pytest.mark.parametrize(("variant", "types"), [("wsj_only", 16_000), ("semi_supervised", 32_000)])
def test_the_paper_s_settings(variant, types):
    config = load_config(f"parsing:{variant}")
    assert (config.model.encoder_layers, config.model.decoder_layers) == (4, 4)
    assert config.model.d_model == config.model.num_heads * config.model.d_k == 1024
    assert config.data.vocabulary.size == types
    assert (config.decoding.beam_size, config.decoding.length_penalty) == (21, 0.3)
    assert (config.decoding.max_ratio, config.decoding.max_extra_tokens) == (1.0, 300)
    # "All other parameters remained unchanged from the English-to-German base translation model."
    base, ours = flatten(ExperimentConfig()), flatten(config)
    for key in (
        *("model.d_ff", "model.num_heads", "model.norm", "model.positions", "model.ffn_dropout"),
        *("training.label_smoothing", "training.schedule.kind", "training.steps"),
        *("training.optimizer.beta1", "training.optimizer.beta2", "data.batch.tokens"),
    ):
        assert ours[key] == base[key], key


def test_the_semi_supervised_setting_has_both_corpora():
    names = {corpus.name for corpus in load_config("parsing:semi_supervised").data.train}
    assert names == {"treebank", "highconf"}


@pytest.mark.parametrize("variant", ["wsj_only", "semi_supervised", "craft"])
def test_every_output_that_may_be_needed_fits(variant):
    config = load_config(f"parsing:{variant}")
    # A tree has its words and two tokens for each constituent; 300 more than the words suffice.
    longest = config.data.filter.max_length
    assert longest + config.decoding.max_extra_tokens <= config.model.max_length
    assert {"XX", "(NP", ")NP", "(WHADJP"} <= set(config.data.vocabulary.tgt_words)
