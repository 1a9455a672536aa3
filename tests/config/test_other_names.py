"""Names of other toolkits lead to settings that exist."""

from flaxformer_mt.config import ExperimentConfig, flatten
from flaxformer_mt.config.freeze import default_of
from flaxformer_mt.config.other_names import OURS, ours


def test_each_name_leads_to_a_setting_a_corpus_or_a_flag():
    groups = {"data.train", "data.valid", "data.test", "--workdir", "--init-from"}
    for name in {*OURS.values()} - groups:
        assert default_of(name) is not None


def test_no_name_of_ours_is_taken_for_another():
    names = {key.rpartition(".")[2] for key in flatten(ExperimentConfig())}
    assert not names & OURS.keys()


def test_a_name_is_found_as_flags_and_keys_are_written():
    assert ours("--learning-rate") == ours("learning_rate") == ["training.schedule.peak"]
    assert ours("--layers") == ["model.encoder_layers", "model.decoder_layers"]
    assert ours("--unheard-of") == []
