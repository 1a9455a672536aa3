"""Types that a trained model's vocabulary gets for new tags and symbols; all others stay."""

import pytest

from flaxformer_mt.config.schema import CorpusConfig, DataConfig, VocabularyConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.extended_vocabulary import new_types, with_types, with_types_of
from flaxformer_mt.data.type_table import MARKS, TypeTable
from flaxformer_mt.data.vocabulary import EOS, Vocabularies, Vocabulary
from tests.data.pairs import TOY

PAIRS = [*zip(TOY, reversed(TOY), strict=True)]


def learned(size=40, **settings):
    return vocabulary.train_pair(PAIRS, VocabularyConfig(size=size, **settings), tags=["<2de>"])


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_new_types_come_last_and_are_never_split(kind):
    before = learned(kind=kind).src
    after = with_types(before, ["<2de>", "<2fr>", "<x1/>", "<2fr>"])
    after.check()
    assert after.pieces() == [*before.pieces(), "<2fr>", "<x1/>"]
    assert after.encode(TOY) == before.encode(TOY)
    for text in ("<2fr>", "<x1/>", "<2de>"):
        assert after.is_one_type(text)
    (ids,) = after.encode(["<2fr> the cat sees<x1/>."])
    assert ids.count(before.size) == 1 and ids.count(before.size + 1) == 1
    assert after.decode([ids]) == ["<2fr> the cat sees<x1/>."]
    flat, lengths = after.encode_flat([b"<2fr> the cat sees<x1/>."])
    assert flat.tolist() == [*ids, EOS] and lengths.tolist() == [len(ids) + 1]


def test_nothing_new_changes_nothing():
    before = learned()
    assert with_types(before.src, ["<2de>"]) is before.src
    assert new_types(before, before) == []


def test_a_table_of_types_gets_them_too():
    model = learned().src
    table = TypeTable((*MARKS, *model.pieces()[len(MARKS) :]))
    after = with_types(Vocabulary(model.model, table), ["<2fr>"])
    assert after.size == model.size + 1 and after.pieces()[-1] == "<2fr>"
    assert after.is_one_type("<2fr>")
    (ids,) = after.encode(["<2fr> the cat"])
    assert model.size in ids and after.decode([ids]) == ["<2fr> the cat"]


def test_tags_are_of_the_source_and_symbols_of_both_sides():
    data = DataConfig(
        train=(CorpusConfig(name="a", tag="<2fr> <news>"),),
        valid_sets=(CorpusConfig(name="b", tag="<2it>"),),
        vocabulary=VocabularyConfig(symbols=("<x1/>",)),
    )
    before = learned(shared=False)
    after = with_types_of(before, data)
    assert after.src.pieces()[before.src.size :] == ["<2fr>", "<news>", "<2it>", "<x1/>"]
    assert after.tgt.pieces()[before.tgt.size :] == ["<x1/>"]
    assert new_types(before, after) == ["<2fr>", "<news>", "<2it>", "<x1/>"]

    shared = learned()
    both = with_types_of(shared, data)
    assert both.shared and both.src.size == shared.src.size + 4


def test_whole_words_have_no_symbols():
    data = DataConfig(vocabulary=VocabularyConfig(symbols=("<x1/>",), tgt_types="words"))
    words = vocabulary.train(TOY, VocabularyConfig(size=40), words=True)
    before = Vocabularies(learned().src, words)
    assert with_types_of(before, data).tgt == words
