"""Corpora in languages of their own: directions, validation sets, and what contradicts them."""

import dataclasses

import pytest

from flaxformer_mt.config import ConfigError, CorpusConfig, default_config, freeze, read_config
from flaxformer_mt.config.consistency import unused_settings
from flaxformer_mt.config.digest_keys import check_resume, trains
from flaxformer_mt.config.freeze import thaw
from flaxformer_mt.config.languages import languages_of_tag, tag_of_each_pair
from flaxformer_mt.config.load import apply_overrides
from flaxformer_mt.config.schema import Direction
from flaxformer_mt.config.tokenizers import for_corpus, with_recorded_tokenizers, with_tokenizer

FILES = {"src": "a.en", "tgt": "a.de"}


def made(**data):
    tree = default_config()
    tree.data.train = {"a": FILES}
    tree.data.valid = FILES
    for name, setting in data.items():
        tree.data[name] = setting
    return tree


def of(src_lang, tgt_lang, tag=""):
    return {**FILES, "src_lang": src_lang, "tgt_lang": tgt_lang, "tag": tag}


def test_directions_are_pairs_of_languages_with_their_tags():
    corpora = {
        "a": of("en", "de", "<2de>"),
        "b": of("en", "fr", "<2fr>"),
        "c": of("en", "fr", "<2fr> <news>"),
        "d": of("fr", "en", "<bt>"),
        "e": of("fr", "en"),
    }
    data = freeze(made(train=corpora), "a test").data
    tags = {("en", "de"): "<2de>", ("en", "fr"): "<2fr>", ("fr", "en"): ""}
    assert tag_of_each_pair(data.directions) == tags
    assert [*tag_of_each_pair(data.directions)] == [*tags]
    assert data.tags == {"<2de>", "<2fr>", "<news>", "<bt>"}


@pytest.mark.parametrize(
    ("tag", "languages"),
    [
        ("<2fr>", ("en", "fr")),
        (" <2fr>  <news>", ("en", "fr")),
        ("<news>", ("en", "fr")),  # among others
        ("<bt>", ("fr", "en")),
        ("<2de>", ("", "de")),  # from two languages
        ("<none>", ("", "")),
        ("", ("", "")),
    ],
)
def test_a_tag_tells_the_languages_of_its_text(tag, languages):
    directions = (
        Direction("en", "de", "<2de>"),
        Direction("fr", "de", "<2de>"),
        Direction("en", "fr", "<2fr>"),
        Direction("en", "fr", "<2fr> <news>"),
        Direction("fr", "en", "<bt>"),
        Direction("it", "en", ""),
    )
    assert languages_of_tag(directions, tag) == languages


def test_the_run_s_languages_are_those_that_its_first_corpus_states():
    corpora = {
        "a": {"src": "x", "tgt": "y", "src_lang": "fr", "tgt_lang": "it"},
        "b": of("en", "de"),
    }
    tree = made(train=corpora)
    tree.data.valid = {"src": "x", "tgt": "y"}
    data = freeze(tree, "a test").data
    assert (data.src_lang, data.tgt_lang) == ("fr", "it")
    # One side may be stated, and the names of the files show the other.
    one_side = {"a": {"src": "t.en", "tgt": "t1", "tgt_lang": "fr"}}
    tree = made(train=one_side)
    tree.data.valid = {"src": "v.en", "tgt": "v1", "tgt_lang": "fr"}
    data = freeze(tree, "a test").data
    assert (data.src_lang, data.tgt_lang) == ("en", "fr")
    plain = freeze(made(), "a test").data
    assert (plain.src_lang, plain.tgt_lang) == ("en", "de")


def test_another_language_is_tokenised_in_its_own_way():
    data = dataclasses.replace(
        freeze(made(), "a test").data, bleu_tokenizer="13a", src_lang="en", tgt_lang="de"
    )
    chinese = CorpusConfig(tgt_lang="zh")
    assert for_corpus(data, chinese).bleu_tokenizer == "zh"
    austrian = for_corpus(data, CorpusConfig(tgt_lang="de_AT"))
    assert (austrian.tgt_lang, austrian.bleu_tokenizer) == ("de_AT", "13a")
    assert (
        for_corpus(data, CorpusConfig(tgt_lang="zh", bleu_tokenizer="char")).bleu_tokenizer
        == "char"
    )


def test_a_run_records_the_tokenisation_of_each_validation_set():
    tree = made(valid={}, valid_sets={"a": of("en", "zh"), "b": of("zh", "en"), "c": FILES})
    data = dataclasses.replace(freeze(tree, "a test").data, tgt_lang="de")
    recorded = with_tokenizer(data)
    assert recorded.bleu_tokenizer == "13a"
    assert [corpus.bleu_tokenizer for corpus in recorded.valid_sets] == ["zh", "13a", "auto"]
    assert with_tokenizer(recorded) == recorded == with_recorded_tokenizers(data, recorded)
    of_user = with_tokenizer(dataclasses.replace(data, bleu_tokenizer="intl"))
    assert [corpus.bleu_tokenizer for corpus in of_user.valid_sets] == ["intl", "intl", "auto"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"valid_sets": {"b": FILES}}, "'data.valid' is set, and 'data.valid_sets' too"),
        (
            {"valid": {}, "valid_sets": {"b": FILES}, "valid_fraction": 0.1},
            "holds out training text, but 'data.valid_sets' is set too",
        ),
        ({"mix_temperature": 0.5}, "'data.mix_temperature' = 0.5 must be 0 .off. or at least 1"),
        (
            {"mix_temperature": 5.0, "train": {"a": {**FILES, "weight": 1.0}}},
            "'data.mix_temperature' = 5.0 decides the corpora's shares, but they have a 'weight'",
        ),
        ({"train": {"a": {**FILES, "tag": "<a>  <b>"}}}, "words with single blanks between them"),
        ({"train": {"a": {**FILES, "tag": "<a> </s>"}}}, "'<a> </s>' has </s>, a mark of"),
    ],
)
def test_contradictions_are_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        for unused in unused_settings(freeze(made(**changes), "a test")):
            raise ConfigError(unused)


@pytest.mark.parametrize(
    ("best_set", "message"),
    [("b", "needs 'data.valid_sets'"), ("frr", "isn't in data.valid_sets; did you mean 'fr'")],
)
def test_the_set_that_decides_must_be_there(best_set, message):
    tree = made() if best_set == "b" else made(valid={}, valid_sets={"fr": FILES})
    tree.training.best_set = best_set
    with pytest.raises(ConfigError, match=message):
        freeze(tree, "a test")


def test_an_override_replaces_the_other_form_of_validation_text():
    many = "multi30k:many"
    assert len(read_config(many).data.valid_sets) == 6
    one = read_config(many, {"data.valid": ("v.en", "v.de")}).data
    assert one.valid_sets == () and one.valid.src == "v.en"
    sets = read_config("multi30k:tiny", {"data.valid_sets.a": ("v.en", "v.de")}).data
    assert sets.valid == CorpusConfig(name="valid") and sets.valid_sets[0].name == "a"
    assert sets.has_validation_text and [*sets.validation] == ["data.valid_sets.a"]
    held_out = read_config("multi30k:tiny", {"data.valid_fraction": 0.1}).data
    assert held_out.valid_sets == () and not held_out.has_validation_text


def test_what_a_set_decided_is_left_to_the_text_that_replaces_it():
    given = {"data.valid_sets.a": ("v.en", "v.de"), "training.best_set": "a"}
    assert read_config("multi30k:tiny", given).training.best_set == "a"
    with pytest.raises(ConfigError, match="needs 'data.valid_sets'"):
        read_config("multi30k:many", {"data.valid": ("v.en", "v.de"), "training.best_set": "en_de"})
    tree = made(valid={}, valid_sets={"a": FILES})
    tree.training.best_set = "a"
    recorded = freeze(tree, "a test")
    draft = thaw(recorded)
    apply_overrides(draft, ["data.valid=v.en,v.de"])
    assert freeze(draft, "a test").training.best_set == ""


def test_a_corpus_s_language_may_be_corrected_unless_a_filter_has_looked_at_it():
    before = freeze(made(train={"a": of("en", "de")}), "a test")
    after = freeze(made(train={"a": of("en", "nl")}), "a test")
    changed = check_resume(before, after, "run")
    assert [*changed] == ["data.train.a.tgt_lang"] and not trains(changed)
    filters = {"filter": dataclasses.replace(before.data.filter, script=0.5)}
    of_script = [
        dataclasses.replace(one, data=dataclasses.replace(one.data, **filters))
        for one in (before, after)
    ]
    with pytest.raises(ConfigError, match="'data.train.a.tgt_lang' was 'de', is now 'nl'"):
        check_resume(*of_script, "run")


def test_sets_keep_the_order_given():
    given = {"data.valid_sets.z": ("z.en", "z.de"), "data.valid_sets.a": ("a.en", "a.de")}
    config = read_config("multi30k:tiny", given)
    assert [corpus.name for corpus in config.data.valid_sets] == ["z", "a"]
