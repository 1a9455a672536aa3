"""The phrases that the benchmark of markup marks in the grammar's sentences."""

import dataclasses
import random

from benchmarks.marked_grammar import chosen_phrases, marked, placed_right, tagged
from benchmarks.markup import elements_kept, with_elements
from benchmarks.markup_placeholders import (
    MOST,
    is_well_formed,
    kept_symbols,
    with_symbols,
    with_tags_again,
)
from flaxformer_mt.grammar.text import pairs


def test_marks_change_no_sentence_and_are_around_phrases():
    sentences = list(marked("test", 100))
    assert [(one.source, one.target) for one in sentences] == list(pairs("test", 100))
    phrases = {
        (one.source[phrase.source], one.target[phrase.target])
        for one in sentences
        for phrase in one.phrases
    }
    assert {("In his city", "In seiner Stadt"), ("good guest", "gute Gast")} <= phrases


def test_elements_are_around_the_phrases_of_a_sentence():
    rng = random.Random(1)
    for sentence in marked("test", 50):
        phrases = chosen_phrases(sentence, rng)
        page = tagged(sentence, phrases)
        assert elements_kept(page, page) == len(phrases)
        untranslated = dataclasses.replace(sentence, target=sentence.source)
        own = [phrase._replace(target=phrase.source) for phrase in phrases]
        assert placed_right(page, untranslated, own) == len(phrases)


def test_lost_elements_and_broken_outputs_are_counted():
    line = with_elements("a b c d e f < g & h", random.Random(4))
    count = line.count("</")
    assert count and elements_kept(f"<p>{line}</p>", f"<p>{line}</p>") == count
    assert elements_kept(f"<p>{line}</p>", "<p>a</p>") == 0
    assert elements_kept(f"<p>{line}</p>", "<p><b>a</p>") is None


def test_symbols_of_a_sentence_give_its_tags_back():
    rng = random.Random(2)
    for sentence in marked("train", 50):
        phrases = chosen_phrases(sentence, rng)[:MOST]
        source, target = with_symbols(sentence, phrases)
        assert with_tags_again(source, len(phrases)) == tagged(sentence, phrases)
        assert kept_symbols(target, len(phrases)) == len(phrases)
        page = with_tags_again(target, len(phrases))
        assert is_well_formed(page) and placed_right(page, sentence, phrases) == len(phrases)


def test_symbols_in_the_wrong_order_are_not_well_formed():
    assert not is_well_formed(with_tags_again("</x1>a<x1>", 1))
    assert is_well_formed(with_tags_again("<x1>R&D</x1> a < b", 1))
    assert kept_symbols("<x1>a</x1> <x2>b</x1>", 2) == 0
