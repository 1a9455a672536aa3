"""Cutting texts: nothing is lost, nothing has a line break, doubtful places are left alone."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.serving.sentences import codes_among, split_sentences

LINE_ENDS = "\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029"
PARTS = [*"aB3 .!?…,\"'”)(。！」\t\xa0\u3000", *LINE_ENDS, "Dr", " é"]
texts = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)


@given(texts | st.text())
def test_joining_the_sentences_gives_the_text_back(text: str) -> None:
    for at_marks in (True, False):
        cut = split_sentences(text, at_marks=at_marks)
        assert cut.joined(cut.texts) == text
        assert len(cut.glue) == len(cut.texts) + 1
        assert all(glue.strip() == "" for glue in cut.glue)


@given(texts | st.text())
def test_a_sentence_is_one_line_without_outer_blanks(text: str) -> None:
    for sentence in split_sentences(text).texts:
        assert sentence == sentence.strip() != ""
        assert not re.search(f"[{LINE_ENDS}]", sentence)
        assert len(sentence.splitlines()) == 1


@given(texts)
def test_cutting_a_sentence_again_changes_nothing(text: str) -> None:
    for sentence in split_sentences(text).texts:
        assert split_sentences(sentence).texts == (sentence,)


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
    ],
)
def test_where_it_cuts(text: str, sentences: list[str]) -> None:
    assert list(split_sentences(text).texts) == sentences


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("a" * 2500, [1000, 1000, 500]),
        ("word " * 500, [999, 999, 499]),
        ("a" * 999 + "\u0301" * 20 + "b" * 10, [998, 31]),
        ("\u0301" * 1001, [1000, 1]),
        ("a" * 1000, [1000]),
    ],
)
def test_what_is_too_long_is_cut_where_it_hurts_least(text: str, lengths: list[int]) -> None:
    for at_marks in (True, False):
        cut = split_sentences(text, at_marks=at_marks)
        assert [len(part) for part in cut.texts] == lengths
        assert cut.joined(cut.texts) == text


CODES = frozenset({">>fra<<", ">>deu<<"})


def read(text: str) -> list[str]:
    """What the model reads of each sentence."""
    cut = split_sentences(text, codes=CODES)
    pairs = zip(cut.codes, cut.texts, strict=True)
    return [f"{code} {sentence}" if code else sentence for code, sentence in pairs]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (">>fra<< One. Two!\nThree", [">>fra<< One.", ">>fra<< Two!", ">>fra<< Three"]),
        (">>fra<<One. Two.", [">>fra<<One.", ">>fra<< Two."]),
        ("One. Two.", ["One.", "Two."]),
        (">>fra<<\nOne. Two.", [">>fra<< One.", ">>fra<< Two."]),
        (">>fra<< One.\n>>deu<< Two. Three", [">>fra<< One.", ">>deu<< Two.", ">>deu<< Three"]),
        ("One.\n>>deu<< Two.", ["One.", ">>deu<< Two."]),
        # Quotes in several languages, and no code of this model.
        (">>tout va bien<< One. Two.", [">>tout va bien<< One.", "Two."]),
        (">>xho<< One. Two.", [">>xho<< One.", "Two."]),
        (">>fra<< " + "a" * 1500, [">>fra<<", ">>fra<< " + "a" * 1000, ">>fra<< " + "a" * 500]),
    ],
)
def test_a_language_code_holds_for_all_that_follows(text: str, sentences: list[str]) -> None:
    if text.endswith("a" * 1500):
        # Wherever it is cut, each part is told the language.
        assert all(each.startswith(">>fra<<") for each in read(text))
    else:
        assert read(text) == sentences


@given(texts | st.text())
def test_where_there_are_no_codes_nothing_changes(text: str) -> None:
    plain, coded = split_sentences(text), split_sentences(text, codes=CODES)
    assert plain == coded and not any(plain.codes)


@given(st.sampled_from(sorted(CODES)), texts.filter(lambda text: bool(text.strip())))
def test_every_sentence_of_a_coded_text_has_its_code(code: str, text: str) -> None:
    cut = split_sentences(f"{code} {text}", codes=CODES)
    for sentence, before in zip(cut.texts, cut.codes, strict=True):
        assert sentence.startswith(code) != (before == code)


def test_codes_are_pieces_of_their_form() -> None:
    pieces = ["<pad>", "\u2581a", ">>fra<<", ">>", "<<", ">><<", ">>zle_Cyrl<<", "x>>deu<<"]
    assert codes_among(pieces) == {">>fra<<", ">>zle_Cyrl<<"}


def test_a_long_text_is_cut_in_linear_time() -> None:
    for text in ("a. " * 50_000, ". " * 50_000, "!" * 100_000, " " * 100_000 + "x", '."' * 50_000):
        cut = split_sentences(text)
        assert cut.joined(cut.texts) == text
