"""Cutting texts: nothing is lost, nothing has a line break, doubtful places are left alone."""

import re

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.serving.sentences import split_sentences

LINE_ENDS = "\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029"
PARTS = [*"aB3 .!?…,\"'”)(。！」\t\xa0\u3000", *LINE_ENDS, "Dr", " é"]
CODES = frozenset({">>fra<<", ">>deu<<"})
texts = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)


@given(texts | st.text())
def test_sentences_are_lines_without_outer_blanks_and_joined_the_text_again(text):
    for at_marks in (True, False):
        cut = split_sentences(text, at_marks=at_marks)
        assert cut.joined(cut.texts) == text
        assert len(cut.glue) == len(cut.texts) + 1
        assert all(glue.strip() == "" for glue in cut.glue)
    cut = split_sentences(text)
    for sentence in cut.texts:
        assert sentence == sentence.strip() != ""
        assert not re.search(f"[{LINE_ENDS}]", sentence)
        assert len(sentence.splitlines()) == 1
        assert split_sentences(sentence).texts == (sentence,)
    assert cut == split_sentences(text, codes=CODES) and not any(cut.codes)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "go." She left.', ['He said "go."', "She left."]),
        ("Wait … Yes... No.", ["Wait …", "Yes...", "No."]),
        ("Dr. Smith met J. S. Bach.", ["Dr. Smith met J. S. Bach."]),
        ("Am 3. Mai kam er. Er ging.", ["Am 3. Mai kam er.", "Er ging."]),
        ("It was 1990. Then it ended.", ["It was 1990.", "Then it ended."]),
        ("z.B. Wien, u.a. Graz.", ["z.B. Wien, u.a. Graz."]),
        ("a man . another man .", ["a man . another man ."]),  # tokenised lower-case text
        ("See e.g. this. 42 is it.", ["See e.g. this.", "42 is it."]),
        ("彼は来た。彼女は行った！ 終わり", ["彼は来た。", "彼女は行った！", "終わり"]),
        ("¿Qué? ¡Sí! Ya.", ["¿Qué?", "¡Sí!", "Ya."]),
        ("one line\r\nanother\u2028third", ["one line", "another", "third"]),
        ("3.14 is pi.5 no", ["3.14 is pi.5 no"]),
        (" \n\t ", []),
        # What is too long is cut where it hurts least.
        ("a" * 2500, ["a" * 625] * 4),
        ("word " * 300, [("word " * 150)[:-1]] * 2),
        ("a" * 501 + "\u0301" * 520 + "b", ["a" * 500, "a" + "\u0301" * 520 + "b"]),
        ("\u0301" * 1001, ["\u0301" * 500, "\u0301" * 501]),
        ("a" * 1000, ["a" * 1000]),
    ],
    ids=range(19),
)
def test_where_it_cuts(text, sentences):
    assert list(split_sentences(text).texts) == sentences


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
    cut = split_sentences(text, codes=CODES)
    pairs = zip(cut.codes, cut.texts, strict=True)
    assert [f"{code} {sentence}".lstrip() for code, sentence in pairs] == sentences


@given(st.sampled_from(sorted(CODES)), texts.filter(str.strip) | st.just("a" * 1500))
def test_every_sentence_of_a_coded_text_has_its_code(code, text):
    cut = split_sentences(f"{code} {text}", codes=CODES)
    for sentence, before in zip(cut.texts, cut.codes, strict=True):
        assert sentence.startswith(code) != (before == code)


def test_a_long_text_is_cut_in_linear_time():
    for text in ("a. " * 50_000, ". " * 50_000, "!" * 100_000, " " * 100_000 + "x", '."' * 50_000):
        cut = split_sentences(text)
        assert cut.joined(cut.texts) == text
