"""A tag before every line, given once: the same as text that has it, for all that a model does."""

import dataclasses

import numpy as np
import pytest

from flaxformer_mt.bulk.loading import identity
from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.config.schema import Direction
from flaxformer_mt.data import vocabulary
from flaxformer_mt.decoding.errors import DecodingError
from flaxformer_mt.decoding.text.segments import lead_of
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.model.transformer import Transformer
from tests.decoding.runs import LINES, LONG, PAIRS, config, parameters

DIRECTIONS = (
    Direction("en", "de", "<2de>"),
    Direction("fr", "de", "<2de>"),
    Direction("fr", "zh", "<2zh>"),
)


@pytest.fixture(scope="module")
def translator():
    """An untrained model whose vocabulary has tags."""
    settings = config()
    types = dataclasses.replace(settings.data.vocabulary, size=64)
    pair = vocabulary.train_pair(PAIRS * 5, types, tags=["<2de>", "<2zh>", "<news>"])
    model = Transformer(settings.model, pair.src.size, pair.tgt.size)
    return Translator(
        parameters(model, 0),
        model,
        pair,
        settings.decoding,
        src_lang="en",
        tgt_lang="de",
        tags=["<2de>", "<2zh>", "<news>"],
        directions=DIRECTIONS,
    )


def test_lines_get_the_tag(translator):
    tagged = translator.with_tag("<2zh> <news>")
    lines = [*LINES, "", " \t", LONG]
    expected = translator.translate(
        [f"<2zh> <news> {line}" if line.strip() else line for line in lines]
    )
    assert [one.text for one in tagged.translate(lines)] == [one.text for one in expected]
    assert [one.text for one in translator.translate(lines)] != [one.text for one in expected]
    assert translator.tag == ""


def test_scores_and_attention_are_of_tagged_sources(translator):
    tagged = translator.with_tag("<2de>")
    with_tags = [(f"<2de> {source}", target) for source, target in PAIRS]
    expected = [one.score for one in translator.score(with_tags)]
    assert np.allclose([one.score for one in tagged.score(PAIRS)], expected)
    assert tagged.attend(*PAIRS[0]).src_pieces == translator.attend(*with_tags[0]).src_pieces


def test_alignments_are_of_the_line_s_own_words(translator):
    for (source, target), aligned in zip(
        PAIRS, translator.with_tag("<2de> <news>").align(PAIRS), strict=True
    ):
        assert aligned.src_words == tuple(source.split())
        assert aligned.tgt_words == tuple(target.split())
        assert [word for _, word in aligned.links] == list(range(len(target.split())))
        assert all(0 <= word < len(source.split()) for word, _ in aligned.links)


def test_a_tag_stands_for_the_languages_of_its_text(translator):
    to_german, to_chinese = map(translator.with_tag, ("<2de>", "<2zh>"))
    assert (to_german.src_lang, to_german.tgt_lang) == ("en", "de")  # of two sources, as it was
    assert (to_chinese.src_lang, to_chinese.tgt_lang) == ("fr", "zh")
    # Whatever was asked of it before.
    for again, languages in (("<2de>", ("en", "de")), ("", ("en", "de"))):
        other = to_chinese.with_tag(again)
        assert ((other.src_lang, other.tgt_lang), other.tag) == (languages, again)
    of_domain = translator.with_tag("<news>")
    assert (of_domain.src_lang, of_domain.tgt_lang) == ("en", "de")
    other = translator.in_languages("fr", "")
    assert (other.src_lang, other.tgt_lang) == ("fr", "de")


def test_a_tag_that_was_not_learnt_is_refused(translator):
    with pytest.raises(DecodingError, match="no tag '<2it>'; it knows <2de>, <2zh>, <news>"):
        translator.with_tag("<2de> <2it>")
    with pytest.raises(TypeError, match="tag"):
        translator.with_tag(2)


def test_a_line_begins_with_several_tags(translator):
    vocabulary_of_tags = translator.vocabularies.src
    tags = frozenset(("<2de>", "<news>"))
    assert lead_of("<2de> <news> a dog", vocabulary_of_tags, tags) == "<2de> <news> "
    assert lead_of("<2de> a <news> dog", vocabulary_of_tags, tags) == "<2de> "
    assert lead_of("a <news> dog", vocabulary_of_tags, tags) == ""
    assert lead_of("<2de>", vocabulary_of_tags, tags) == ""


def test_an_output_with_another_tag_is_another_output(translator):
    """A command must not continue it."""
    plain, tagged = identity(translator), identity(translator.with_tag("<2de>"))
    assert "tag" not in plain and tagged == {**plain, "tag": "<2de>"}
    in_chinese = identity(translator.with_tag("<2zh>"))
    assert in_chinese == {**plain, "tag": "<2zh>", "languages": "fr zh"}
    assert identity(translator.in_languages("", "zh")) == {**plain, "languages": "en zh"}


def test_a_line_that_has_a_tag_keeps_it(translator):
    line = f"<2de> {LINES[0]}"
    tagged = translator.with_tag("<2zh>")
    assert tagged.translate(line).text == translator.translate(line).text


def test_without_tags_none_is_known(translator):
    pair = vocabulary.train_pair(PAIRS * 5, VocabularyConfig(size=60))
    model = Transformer(config().model, pair.src.size, pair.tgt.size)
    plain = Translator(parameters(model, 0), model, pair, config().decoding)
    with pytest.raises(DecodingError, match="no tag '<2de>'; it knows none"):
        plain.with_tag("<2de>")
