"""Header lines and swapped sides are recognised, and named before anything is learned."""

from dataclasses import replace

import pytest

from flaxformer_mt.config.schema import CorpusConfig, VocabularyConfig
from flaxformer_mt.data.prepare.first_look import notes
from flaxformer_mt.grammar.text import pairs
from tests.data.prepare.corpora import data_config, prepare, write

TEXT = list(pairs("train", 300))
SWAPPED = [(tgt, src) for src, tgt in TEXT]


@pytest.fixture
def config(tmp_path):
    write(tmp_path, "train", TEXT)
    write(tmp_path, "valid", TEXT[:20])
    return data_config(tmp_path, src_lang="en", tgt_lang="de")


def test_plain_text_is_not_remarked_on(config):
    assert list(notes(config)) == []


def test_swapped_sides_are_named(config, tmp_path):
    write(tmp_path, "train", SWAPPED)
    (note,) = notes(config)
    assert note == (
        "data.train.train: the source text looks like 'de' and the target text like 'en': the "
        "sides seem to be swapped"
    )


def test_each_corpus_is_judged_by_itself(config, tmp_path):
    write(tmp_path, "valid", SWAPPED)
    (note,) = notes(config)
    assert note.startswith("data.valid: ")


@pytest.mark.parametrize("languages", [("ka", "de"), ("en", "ka"), ("en", "en")])
def test_unknown_languages_are_not_judged(config, tmp_path, languages):
    write(tmp_path, "train", SWAPPED)
    src_lang, tgt_lang = languages
    assert list(notes(replace(config, src_lang=src_lang, tgt_lang=tgt_lang))) == []


def test_a_tagged_corpus_may_be_of_another_direction(config, tmp_path):
    write(tmp_path, "train", SWAPPED)
    (corpus,) = config.train
    write(tmp_path, "valid", SWAPPED)
    train, valid = (replace(one, tag="<2en>") for one in (corpus, config.valid))
    assert list(notes(replace(config, train=(train,), valid=valid))) == []


def test_text_that_mixes_its_languages_is_not_swapped(config, tmp_path):
    write(tmp_path, "train", [*TEXT[:150], *SWAPPED[150:]])
    assert list(notes(config)) == []


def test_words_of_both_languages_tell_nothing(config, tmp_path):
    write(tmp_path, "train", [("og det er en til på", "og det er en til på")] * 100)
    write(tmp_path, "valid", [("og det er en til på", "og det er en til på")] * 100)
    assert list(notes(replace(config, src_lang="no", tgt_lang="da"))) == []


def test_little_text_is_not_judged(config, tmp_path):
    write(tmp_path, "train", SWAPPED[:5])
    assert list(notes(config)) == []


@pytest.mark.parametrize("header", ["en\tde", "English\tGerman", "source\ttarget", "src_text\tref"])
def test_a_header_is_named_with_its_file_and_line(config, tmp_path, header):
    lines = [header, *(f"{src}\t{tgt}" for src, tgt in TEXT)]
    (tmp_path / "pairs.tsv").write_text("".join(f"{line}\n" for line in lines))
    corpus = CorpusConfig(name="table", kind="tsv", path="pairs.tsv")
    (note,) = notes(replace(config, train=(corpus,)))
    src, tgt = header.split("\t")
    assert note == (
        f"{tmp_path / 'pairs.tsv'}:1: {src!r} and {tgt!r} look like a header, which is read as a "
        "pair; remove the line"
    )


def test_prepare_says_so(config, tmp_path):
    write(tmp_path, "train", SWAPPED)
    said: list[str] = []
    config = replace(config, vocabulary=VocabularyConfig(size=200))
    prepare(config, directory=tmp_path / "run", say=said.append)
    assert said[0].startswith("prepare: warning: data.train.train: the source text looks like 'de'")


def test_a_validation_tag_that_no_training_corpus_has_is_named(config):
    train = (replace(config.train[0], tag="<2de>"),)
    tagged = replace(config, train=train, valid=replace(config.valid, tag="<2de>"))
    assert list(notes(tagged)) == []
    for tag in ("", "<2fr>"):
        (note,) = notes(replace(tagged, valid=replace(config.valid, tag=tag)))
        assert note == (
            f"data.valid.tag = {tag!r} is not the tag of any training corpus (theirs: <2de>): the "
            "model doesn't learn what it asks for"
        )
    assert list(notes(replace(tagged, valid=CorpusConfig(name="valid"), valid_fraction=0.1))) == []
