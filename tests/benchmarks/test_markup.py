"""The phrases that the benchmark of markup marks in the grammar's sentences."""

import dataclasses
import random

from benchmarks.markup import (
    chosen_phrases,
    elements_kept,
    marked,
    placed_right,
    tagged,
    with_elements,
)
from flaxformer_mt.grammar.text import pairs


def test_marks_change_no_sentence_and_are_around_phrases():
    sentences = list(marked(100))
    assert [(one.source, one.target) for one in sentences] == list(pairs("test", 100))
    phrases = {
        (one.source[phrase.source], one.target[phrase.target])
        for one in sentences
        for phrase in one.phrases
    }
    assert {("In his city", "In seiner Stadt"), ("good guest", "gute Gast")} <= phrases


def test_elements_are_around_the_phrases_of_a_sentence():
    rng = random.Random(1)
    for sentence in marked(50):
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
