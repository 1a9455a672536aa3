"""Texts of requests: parts that are not too long, and language codes."""

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.sentences import split_sentences
from flaxformer_mt.serving.sentences import LONGEST, coded_sentences

PARTS = [*"aB3 .!?…,\"'”)(。！」\t\xa0\u3000\n\u2028", "Dr", " é", "long " * 100]
CODES = frozenset({">>fra<<", ">>deu<<"})
texts = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)


@given(texts | st.text())
def test_nothing_is_lost_and_no_part_is_too_long(text):
    for at_marks in (True, False):
        cut = coded_sentences(text, "en", at_marks=at_marks)
        assert cut.joined(cut.texts) == text
        assert all(0 < len(sentence) <= LONGEST for sentence in cut.texts)
        assert not any(cut.codes)
        assert cut == coded_sentences(text, "en", at_marks=at_marks, codes=CODES)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("a" * 2500, ["a" * 625] * 4),
        ("word " * 300, [("word " * 150)[:-1]] * 2),
        ("a" * 501 + "\u0301" * 520 + "b", ["a" * 500, "a" + "\u0301" * 520 + "b"]),
        ("\u0301" * 1001, ["\u0301" * 500, "\u0301" * 501]),
        ("a" * 1000, ["a" * 1000]),
    ],
    ids=range(5),
)
def test_what_is_too_long_is_cut_where_it_hurts_least(text, sentences):
    assert list(coded_sentences(text, "en").texts) == sentences


def test_a_line_that_is_too_long_is_cut_at_every_sentence_end():
    line = "A dog runs. " * 100
    cut = coded_sentences(line, "en", at_marks=False)
    assert cut.texts == split_sentences(line, "en").texts and len(cut.texts) == 100
    assert len(coded_sentences(line[:900], "en", at_marks=False).texts) == 1


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (">>fra<< One. Two!\nThree", [">>fra<< One.", ">>fra<< Two!", ">>fra<< Three"]),
        (">>fra<<One. Two.", [">>fra<<One.", ">>fra<< Two."]),
        (">>fra<<\nOne. Two.", [">>fra<< One.", ">>fra<< Two."]),
        (">>fra<< One.\n>>deu<< Two. Three", [">>fra<< One.", ">>deu<< Two.", ">>deu<< Three"]),
        ("One.\n>>deu<< Two.", ["One.", ">>deu<< Two."]),
        # Quotes in several languages, and no code of this model.
        (">>tout va bien<< One. Two.", [">>tout va bien<< One.", "Two."]),
        (">>xho<< One. Two.", [">>xho<< One.", "Two."]),
    ],
)
def test_a_language_code_holds_for_all_that_follows(text, sentences):
    cut = coded_sentences(text, "en", codes=CODES)
    pairs = zip(cut.codes, cut.texts, strict=True)
    assert [f"{code} {sentence}".lstrip() for code, sentence in pairs] == sentences


@given(st.sampled_from(sorted(CODES)), texts.filter(str.strip) | st.just("a" * 1500))
def test_every_sentence_of_a_coded_text_has_its_code(code, text):
    cut = coded_sentences(f"{code} {text}", "en", codes=CODES)
    for sentence, before in zip(cut.texts, cut.codes, strict=True):
        assert sentence.startswith(code) != (before == code)
