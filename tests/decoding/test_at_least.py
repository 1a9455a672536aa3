"""Outputs of at least a number of tokens, or a share of their source's."""

import pytest

from flaxformer_mt.config import ConfigError, default_config, freeze
from flaxformer_mt.decoding.masks.trees import Brackets
from flaxformer_mt.decoding.search.settings import Rules
from tests.decoding.runs import LINES


def lengths(translator, lines=LINES, **settings):
    translations = translator.with_config(**settings).translate(lines)
    return [len(translation.tokens) for translation in translations]


@pytest.fixture(scope="module")
def sources(translator):
    return [len(tokens) for tokens in translator.vocabularies.src.encode(LINES)]


def test_no_output_has_fewer_tokens(translator):
    plain = lengths(translator)
    least = min(plain) + 2
    assert min(lengths(translator, min_length=least)) >= least
    assert lengths(translator, min_length=0, min_ratio=0.0) == plain


def test_no_output_is_shorter_than_a_share_of_its_source(translator, sources):
    for length, source in zip(lengths(translator, min_ratio=0.9), sources, strict=True):
        assert length >= 0.9 * source - 1e-9


def test_the_longest_output_that_fits_ends_all_the_same(translator, sources):
    found = lengths(translator, min_length=1000, max_ratio=0.0, max_extra_tokens=6)
    assert found == [5] * len(sources)  # and the end mark
    assert lengths(translator, min_ratio=1000.0, max_ratio=0.0, max_extra_tokens=6) == found


def test_a_word_may_have_a_word(translator):
    blank, word = lengths(translator, ["", "a"], min_ratio=0.3)
    assert blank == 0 and word >= 1


def test_trees_have_lengths_of_their_own():
    config = default_config()
    config.decoding.outputs = "trees"
    config.decoding.min_length = 3
    with pytest.raises(ConfigError, match="'decoding.min_length' = 3 needs 'decoding.outputs' ="):
        freeze(config, "tests")
    trees = Brackets(pairs=((4, 5),), leaves=(8,))
    with pytest.raises(ValueError, match="min_length and min_ratio are for text"):
        Rules(beam_size=1, trees=trees, min_length=3)
