"""Corpora stay in the order in which they are given, and a run's in its own."""

import dataclasses

from flaxformer_mt.config import default_config, freeze, read_config, thaw, to_dict
from flaxformer_mt.config.digest_keys import deciding
from flaxformer_mt.config.freeze import corpus
from flaxformer_mt.config.sizes import MUCH, TextSize

GIVEN = {"data.train.zgood": ("z.en", "z.de"), "data.train.abad": ("a.en", "a.de")}


def names(config):
    return [corpus.name for corpus in config.data.train]


def test_corpora_keep_the_order_given():
    config = read_config("files", GIVEN)
    assert names(config) == ["zgood", "abad"]
    # Recorded, and read from the record.
    assert names(freeze(to_dict(config), "record")) == ["zgood", "abad"]
    assert names(freeze(thaw(config), "thawed")) == ["zgood", "abad"]
    texts = [f"{key}={','.join(files)}" for key, files in GIVEN.items()]
    assert names(read_config("files", texts)) == ["zgood", "abad"]
    written = default_config()
    written.data.train = {"zgood": corpus(src="z.en", tgt="z.de")}
    written.data.train.abad = corpus(src="a.en", tgt="a.de")
    assert names(freeze(written, "file")) == ["zgood", "abad"]


def test_a_run_keeps_its_order():
    """Early ones have recorded the order of names."""
    recorded = read_config("files", dict(reversed(GIVEN.items())))
    again = read_config("files", {**GIVEN, "data.train.new": ("n.en", "n.de")}, recorded=recorded)
    assert names(again) == ["abad", "zgood", "new"]


def test_an_order_other_than_of_names_is_another_experiment():
    config = read_config("files", GIVEN)
    train = tuple(reversed(config.data.train))
    by_name = dataclasses.replace(config, data=dataclasses.replace(config.data, train=train))
    assert "data.train" not in deciding(by_name, "training")
    assert deciding(config, "training")["data.train"] == ["zgood", "abad"]


def test_sizes_of_one_s_own_are_hard_limits():
    def made(**changes):
        settings = {"data.train": ("a.en", "a.de"), **changes}
        return read_config("files", settings, text=TextSize(80_000))

    assert made().data.vocabulary.soft_size
    assert not made(**{"data.vocabulary.size": 700}).data.vocabulary.soft_size
    small = read_config("files:small", {"data.vocabulary.size": 700})
    assert not small.data.vocabulary.soft_size
    assert read_config("files:small").data.vocabulary.soft_size


def test_chinese_and_japanese_get_what_the_pages_say():
    """4,000 types for little text, then twice as many as for other languages."""
    for tokens, size in {80_000: 4000, 2_000_000: 13_000, MUCH: 37_000}.items():
        text = TextSize(tokens)
        for language in ("zh", "ja", "jpn", "zho_Hant", "yue"):
            settings = {"data.train": ("a.en", "a.txt"), "data.src_lang": "en"}
            settings["data.tgt_lang"] = language
            config = read_config("files", settings, text=text)
            vocabulary = config.data.vocabulary
            assert vocabulary.size == size and vocabulary.byte_fallback
            assert vocabulary.character_coverage == 0.9995
            assert (vocabulary.shared, config.model.tie) == (False, "target")
    settings |= {"data.vocabulary.shared": True}
    config = read_config("files", settings, text=TextSize(80_000))
    assert (config.data.vocabulary.shared, config.model.tie) == (True, "all")
