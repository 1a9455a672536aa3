"""Text of several languages: validation sets by name, shares by temperature, several tags."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from flaxformer_mt.config.schema import CorpusConfig, FilterConfig, VocabularyConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.corpus import open_split
from flaxformer_mt.data.prepare import sample
from flaxformer_mt.data.prepare.make import valid_sets, valid_text
from flaxformer_mt.data.prepare.manifest import PrepareError, read_manifest
from flaxformer_mt.data.store import Store
from flaxformer_mt.data.vocabulary import Vocabularies
from tests.data.pairs import listed
from tests.data.prepare.corpora import GOOD, data_config, prepare, write

VOCABULARY = vocabulary.train(itertools.chain(*GOOD), VocabularyConfig(size=60))
REVERSED = [(tgt, src) for src, tgt in GOOD]


def corpus(name, src="en", tgt="de", *, text="train", **settings):
    files = {"src": f"{text}.{src}", "tgt": f"{text}.{tgt}"}
    return CorpusConfig(name=name, **files, tag=f"<2{tgt}>", src_lang=src, tgt_lang=tgt, **settings)


@pytest.fixture
def config(tmp_path):
    """Both directions between English and German, with a validation set for each."""
    long = (" ".join(["the cat"] * 30), "die Katze")
    write(tmp_path / "text", "train", GOOD)
    write(tmp_path / "text", "valid", [*GOOD[:4], long])
    return data_config(
        tmp_path / "text",
        train=(),
        valid=CorpusConfig(name="valid"),
        filter=FilterConfig(max_length=40),
    )


@pytest.fixture
def both(config):
    sides = (("en", "de"), ("de", "en"))
    return replace(
        config,
        train=tuple(corpus(f"{src}_{tgt}", src, tgt) for src, tgt in sides),
        valid_sets=tuple(corpus(f"to_{tgt}", src, tgt, text="valid") for src, tgt in sides),
    )


def test_each_validation_set_has_its_text_and_its_pairs(both, tmp_path):
    store = prepare(both, directory=tmp_path / "run")
    sets = valid_sets(tmp_path / "run" / "data")
    assert [*sets] == ["to_de", "to_en"]
    # With the pair that is too long for the store.
    assert sets["to_de"][0][:4] == [f"<2de> {src}" for src, _ in GOOD[:4]]
    assert [len(side) for text in sets.values() for side in text] == [5, 5, 5, 5]
    assert sets["to_en"][1][:4] == [src for src, _ in GOOD[:4]]
    sources, _ = valid_text(tmp_path / "run" / "data")
    assert sources == [*sets["to_de"][0], *sets["to_en"][0]]
    assert [(corpus.name, corpus.size) for corpus in store.valid.corpora] == [
        ("to_de", 4),
        ("to_en", 4),
    ]
    prepare(both, directory=tmp_path / "run")  # verifies it
    with pytest.raises(PrepareError, match=r"data\.valid_sets: \['to_de', 'to_en'\] then"):
        prepare(replace(both, valid_sets=both.valid_sets[:1]), directory=tmp_path / "run")


def test_one_set_is_called_valid(config, tmp_path):
    one = replace(config, train=(corpus("a"),), valid=replace(corpus("", text="valid"), name=""))
    prepare(one, directory=tmp_path / "run")
    assert [*valid_sets(tmp_path / "run" / "data")] == ["valid"]


def test_a_set_without_pairs_is_named(both, tmp_path):
    write(tmp_path / "text", "empty", [("", "x")])
    empty = corpus("nothing", text="empty")
    with pytest.raises(PrepareError, match=r"data\.valid_sets\.nothing: .*may not be empty"):
        prepare(replace(both, valid_sets=(*both.valid_sets, empty)), directory=tmp_path / "run")


def test_a_script_is_that_of_the_corpus_s_language(both, tmp_path):
    greek = [("die Katze", "η γάτα"), ("der Hund", "ο σκύλος"), ("ein Haus", "a house")]
    for lang, lines in zip(("de", "el"), zip(*greek, strict=True), strict=True):
        (tmp_path / "text" / f"greek.{lang}").write_text("".join(f"{line}\n" for line in lines))
    train = (*both.train, corpus("greek", "de", "el", text="greek"))
    filtered = replace(both, train=train, filter=replace(both.filter, script=0.5))
    prepare(filtered, directory=tmp_path / "run")
    manifest = read_manifest(tmp_path / "run" / "data")
    counts = {account["key"]: account["kept"] for account in manifest["corpora"]}
    assert counts["data.train.greek"] == 2 and counts["data.train.de_en"] == 24
    # The store depends on it, and a machine that resumes must know.
    corrected = replace(filtered, train=(*both.train, replace(train[-1], tgt_lang="ru")))
    with pytest.raises(PrepareError, match=r"data\.train\.greek\.tgt_lang: 'el' then, 'ru' now"):
        prepare(corrected, directory=tmp_path / "run")
    unknown = replace(train[-1], tgt_lang="qqq")
    with pytest.raises(PrepareError, match=r"data\.train\.greek\.tgt_lang = 'qqq': its script"):
        prepare(replace(filtered, train=(*both.train, unknown)), directory=tmp_path / "other")


def test_several_tags_are_types_before_every_source(config, tmp_path):
    tagged = replace(corpus("a"), tag="<2de> <news>")
    valid = replace(corpus("", text="valid"), name="")
    store = prepare(replace(config, train=(tagged,), valid=valid), directory=tmp_path / "run")
    vocabulary = Vocabularies.load(tmp_path / "run" / "vocabulary").src
    assert vocabulary.is_one_type("<2de>") and vocabulary.is_one_type("<news>")
    assert vocabulary.decode(listed(store.train, "src")) == [f"<2de> <news> {s}" for s, _ in GOOD]


@pytest.mark.parametrize(("temperature", "shares"), [(1.0, [0.8, 0.2]), (2.0, [2 / 3, 1 / 3])])
def test_a_temperature_gives_each_corpus_its_share(config, tmp_path, temperature, shares):
    """24 pairs and 6: shares of 4 to 1, and of 2 to 1 by their square roots."""
    write(tmp_path / "text", "small", GOOD[:6])
    train = (corpus("large"), corpus("small", text="small"))
    valid = replace(corpus("", text="valid"), name="")
    mixed = replace(config, train=train, valid=valid, mix_temperature=temperature)
    lines: list[str] = []
    prepare(mixed, directory=tmp_path / "run", say=lines.append)
    weights = [corpus.weight for corpus in Store.open(tmp_path / "run" / "data").train.corpora]
    assert np.allclose(np.array(weights) / sum(weights), shares)
    assert any(f"data.train.small: {shares[1]:.1%} of what training draws" in one for one in lines)
    with pytest.raises(PrepareError, match=r"data\.mix_temperature: .* then, 5\.0 now"):
        prepare(replace(mixed, mix_temperature=5.0), directory=tmp_path / "run")


def test_a_corpus_of_a_mixture_may_not_be_empty(config, tmp_path):
    """A language would be missing, and nothing would say so."""
    write(tmp_path / "text", "long", [(" ".join(["the cat"] * 30), "die Katze")])
    valid = replace(corpus("", text="valid"), name="")
    train = (corpus("large"), corpus("gone", text="long"))
    mixed = replace(config, train=train, valid=valid, mix_temperature=5.0)
    with pytest.raises(PrepareError, match=r"data\.train\.gone: 1 pairs read, 0 kept.*mixture may"):
        prepare(mixed, directory=tmp_path / "run")


def test_the_vocabulary_s_sample_follows_the_temperature(config, tmp_path, monkeypatch):
    write(tmp_path / "text", "small", REVERSED[:6])
    train = (corpus("large"), corpus("small", text="small"))
    mixed = replace(config, train=train, mix_temperature=2.0)
    mixed = replace(mixed, vocabulary=replace(mixed.vocabulary, sample=18))
    learned_from = []

    def remembered(pairs, *_, **__):
        learned_from.extend(pairs)
        return Vocabularies(VOCABULARY, VOCABULARY)

    monkeypatch.setattr(vocabulary, "train_pair", remembered)
    _, _, counts = sample.train_vocabulary(mixed, 1, lambda line: None)
    assert counts == [24, 6] and len(learned_from) == 18
    # Two thirds and one third, by their square roots.
    assert sum(src.startswith("<2de> the") for src, _ in learned_from) == 12


def test_sources_know_their_languages(both):
    languages = [source.languages for _, _, source in open_split(both, "train")]
    assert languages == [("en", "de"), ("de", "en")]
    swapped = replace(both.train[0], src="train.de", tgt="train.en")
    assert list(itertools.chain(open_split(replace(both, train=(swapped,)), "train")))
