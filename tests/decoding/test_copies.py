"""Symbols that outputs have as often as their sources, whatever the model would say."""

import dataclasses
from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.config import ConfigError, default_config, freeze
from flaxformer_mt.data import shortlist, vocabulary
from flaxformer_mt.data.shortlist import Shortlist
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK, Vocabularies
from flaxformer_mt.decoding.errors import DecodingError, LineError
from flaxformer_mt.decoding.masks.base import Generated
from flaxformer_mt.decoding.masks.copies import CopiedSymbols
from flaxformer_mt.decoding.run import shortlists
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.source import Source
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.model.transformer import Transformer
from tests.decoding.runs import PAIRS, config, parameters

SYMBOLS = ("<x1/>", "<x2/>", "｟NUM_1｠")
SOURCES = [
    "the small cat sees <x1/> .",
    "<x2/> runs home , and <x1/> and <x2/> sleep .",
    "who sees the old house ?",
    "｟NUM_1｠｟NUM_1｠<x1/>",
    "",
]
EXPECTED = [
    Counter({"<x1/>": 1}),
    Counter({"<x1/>": 1, "<x2/>": 2}),
    Counter(),
    Counter({"<x1/>": 1, "｟NUM_1｠": 2}),
    Counter(),
]


def translator_of(*, seed=1, shared=True, **arguments):
    """A model that nobody has trained, and whose vocabularies have the symbols."""
    settings = config()
    of_pieces = dataclasses.replace(
        settings.data.vocabulary, size=80, symbols=SYMBOLS, shared=shared, soft_size=True
    )
    model_config = settings.model if shared else dataclasses.replace(settings.model, tie="target")
    vocabularies = vocabulary.train_pair(PAIRS * 5, of_pieces, tags=["<2de>"] if shared else [])
    model = Transformer(model_config, vocabularies.src.size, vocabularies.tgt.size)
    translator = Translator(
        parameters(model, seed),
        model,
        vocabularies,
        settings.decoding,
        symbols=SYMBOLS,
        **arguments,
    )
    return translator.with_config(copy_symbols=True)


def symbols_in(text):
    return Counter({symbol: text.count(symbol) for symbol in SYMBOLS if symbol in text})


def copied(translator, **wanted):
    """The symbols of each hypothesis of each source's translation."""
    translations = translator.translate(SOURCES, **wanted)
    return [[symbols_in(each.text) for each in one.hypotheses] for one in translations]


def all_expected(found):
    return all(
        hypothesis == expected
        for hypotheses, expected in zip(found, EXPECTED, strict=True)
        for hypothesis in hypotheses
    )


@pytest.mark.parametrize("shared", [True, False], ids=["one vocabulary", "two"])
@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"beam_size": 1}, {}),
        ({"beam_size": 4}, {"n_best": 4}),
        ({"diverse_groups": 2}, {"n_best": 2}),
        ({}, {"sampling": Sampling(seed=3), "n_best": 4}),
        ({}, {"constraints": [["hund"], [], [], [], []]}),
        ({}, {"prefixes": ["die", "", "wer", "<x1/>", ""]}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_outputs_have_each_symbol_as_often_as_their_source(settings, wanted, shared):
    translator = translator_of(shared=shared)
    assert all_expected(copied(translator.with_config(**settings), **wanted))
    assert not all_expected(copied(translator.with_config(copy_symbols=False, **settings)))


def test_a_shortlist_has_the_symbols_of_its_sources(monkeypatch):
    monkeypatch.setattr(shortlists, "LEAST_TYPES", 16)
    monkeypatch.setattr(shortlist, "FREQUENT", 1)
    full = translator_of()
    types = full.vocabularies.tgt.size
    marks = np.tile([PAD, BOS, EOS, UNK], (full.vocabularies.src.size, 1))
    ranked = np.arange(types)[::-1]  # symbols last
    known = Shortlist(marks.astype(np.int32), ranked.astype(np.int32), "")
    assert all_expected(copied(translator_of(shortlist=known)))


def test_where_there_is_room_for_the_symbols_alone_nothing_else_comes():
    translator = translator_of().with_config(max_ratio=0.0, max_extra_tokens=4)
    [translation] = translator.translate(["<x2/><x2/><x1/> the cat"])
    assert sorted(translation.text.replace(" ", "")) == sorted("<x2/><x2/><x1/>")


def test_each_sentence_of_a_line_that_is_cut_keeps_its_own():
    translator = translator_of(src_lang="en")
    [translation] = translator.translate(["The <x1/> sleeps. Who sees <x2/>?"], several="split")
    assert translation.by_sentence
    assert symbols_in(translation.text) == Counter({"<x1/>": 1, "<x2/>": 1})


def test_tags_are_not_copied_and_symbols_can_be_left_to_the_vocabulary():
    vocabularies = translator_of().vocabularies
    assert "<2de>" in vocabularies.src.symbols
    every = vocabularies.copies_of([], tags={"<2de>"})
    assert every == vocabularies.copies_of(SYMBOLS)
    assert vocabularies.src.pieces([*every]) == vocabularies.tgt.pieces([*every.values()])
    assert set(vocabularies.tgt.pieces([*every.values()])) == set(SYMBOLS)
    assert [*vocabularies.copies_of(["<x2/>"])] == vocabularies.src.encode(["<x2/>"])[0][1:]


@pytest.mark.parametrize("line", ["at" * 30 + "<x1/>" + "at" * 30, "<x1/>" * 33, "aQ<x2/>Q" * 20])
def test_a_line_that_is_too_long_is_not_cut_within_a_symbol(line):
    [translation] = translator_of().translate([line])
    assert translation.split and symbols_in(translation.text) == symbols_in(line)


def test_symbols_of_a_prefix_or_a_phrase_that_the_source_lacks_are_an_error():
    full = translator_of()
    for wanted in ({"prefixes": ["<x2/> der"]}, {"constraints": [["<x1/> <x1/>"]]}):
        with pytest.raises(LineError, match="more often than the source, from which outputs copy"):
            full.translate(["the <x1/> cat"], **wanted)


def test_what_cannot_be_copied_is_an_error():
    full = translator_of()
    for wanted in ({"forbid": ["a <x1/>"]}, {"forbid_each": [["<x1/>"]]}):
        with pytest.raises(DecodingError, match="has <x1/>, which outputs copy"):
            full.translate(["the cat"], **wanted)
    with pytest.raises(DecodingError, match="can't have decoding.no_repeat_ngram"):
        full.with_config(no_repeat_ngram=2).translate(["the cat"])
    other = translator_of()
    other.symbols = (*SYMBOLS, "<x3/>")
    with pytest.raises(DecodingError, match="<x3/> is not a single type of both vocabularies"):
        other.translate(["the cat"])
    with pytest.raises(DecodingError, match="'<x1/>' is a symbol that outputs copy"):
        translator_of().translate(["the cat"], suppress=["<x1/>"])
    plain = vocabulary.train_pair(PAIRS * 5, config().data.vocabulary)
    bare = Transformer(config().model, plain.src.size, plain.tgt.size)
    translator = Translator(
        parameters(bare, 1), bare, Vocabularies(plain.src, plain.tgt), full.config
    )
    with pytest.raises(DecodingError, match="have no symbols: name them in data.vocabulary.symb"):
        translator.translate(["the cat"])
    settings = (
        ("decoding.outputs", "trees", "'decoding.outputs' = 'text'"),
        ("decoding.no_repeat_ngram", 2, "'decoding.no_repeat_ngram' = 0"),
        ("data.vocabulary.symbols", [], "'data.vocabulary.symbols'"),
    )
    for key, value, needed in settings:
        tree = default_config()
        changes = {"decoding.copy_symbols": True, "data.vocabulary.symbols": ["<x1/>"], key: value}
        tree.update_from_flattened_dict(changes)
        with pytest.raises(ConfigError, match=f"'decoding.copy_symbols' needs {needed}"):
            freeze(tree, "tests")


@pytest.mark.parametrize(
    ("tokens", "limit", "allowed"),
    [
        ([5, 5], 9, {4, 5, 7, 8}),  # both are missing: no end yet
        ([5, 7], 9, {4, 5, 8}),
        ([7, 7], 9, {4, 5, 8}),
        ([8, 7], 9, {4, 5, EOS}),
        ([5, 5], 6, {4, 5, 7, 8}),
        ([5, 5], 5, {7, 8}),  # room for two tokens and the end mark
        ([7, 5], 4, {8}),
        ([7, 8], 4, {4, 5, EOS}),
    ],
)
def test_types_that_may_come_next(tokens, limit, allowed):
    types = np.array([PAD, BOS, EOS, UNK, 4, 5, 7, 8])  # which the search's ids 0 to 7 stand for
    mask = CopiedSymbols((7, 8, 6))  # a shortlist lacks the last
    arrays = mask.arrays([Source([EOS], (0, 0), copied=[7, 8])], types, (2, 4))
    ids = np.searchsorted(types, tokens).tolist()
    generated = Generated(
        tokens=jnp.array(
            [[[*ids, 6, 7, 0]], [[6, 7, 0, 0, 0]]]
        ),  # after two: what was there before
        position=jnp.int32(2),
        limits=jnp.array([limit, 9]),
        vocab=len(types),
    )
    banned = np.asarray(mask.banned(arrays, generated))
    found = {int(number) for number in types[~banned[0, 0]]}
    assert found - {PAD, BOS, UNK} == allowed
    assert set(types[banned[1, 0]].tolist()) == {7, 8}  # a row of padding has none of them
