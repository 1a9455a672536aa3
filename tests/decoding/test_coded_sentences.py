"""Texts of requests: parts that are not too long, and language codes."""

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.decoding.text.coded_sentences import LONGEST, coded_sentences
from flaxformer_mt.keeping.spans import kept_spans
from flaxformer_mt.sentences import split_sentences

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


KEPT = ["{name}", "https://e.x/?a=1", "a@b.cd", "🙂", "{n, plural, one {a. B\n} other {! C}}", "%s"]


@given(st.lists(st.sampled_from([*PARTS, *KEPT]), max_size=40).map("".join))
def test_no_cut_is_within_what_is_kept(text):
    for at_marks in (True, False):
        cut = coded_sentences(text, "en", at_marks=at_marks, codes=CODES, keep=True)
        assert cut.joined(cut.texts) == text
        places, end = [], 0
        for before, sentence in zip(cut.glue, cut.texts, strict=False):
            places += [end, end := end + len(before)]
            end += len(sentence)
        for span in kept_spans(text):
            assert not any(span.core_start < place < span.core_end for place in [*places, end])


@given(texts | st.text())
def test_sentences_of_a_text_are_those_of_its_lines(text):
    split = split_sentences(text, "en")
    cut = coded_sentences(text, "en")
    if all(len(sentence) <= LONGEST for sentence in split.texts):
        assert len(cut.texts) == len(split.texts)
        assert all(part in whole for part, whole in zip(cut.texts, split.texts, strict=True))


@pytest.mark.parametrize(
    ("text", "sentences", "translated"),
    [
        ("“He came. He saw.” She left.", ["He came.", "He saw.", "She left."], "“A B” C"),
        ("\n「来た。見た。」\nOne.", ["来た。", "見た。", "One."], "\n“A B”\nC"),
        ("x\n« Il vint. Il vit. »", ["x", "Il vint.", "Il vit."], "A\n« B C »"),
    ],
)
def test_marks_of_a_quotation_go_around_its_translation(text, sentences, translated):
    cut = coded_sentences(text, "")
    assert list(cut.texts) == sentences and cut.joined(cut.texts) == text
    assert cut.translated("ABC", blanks=True) == translated


@pytest.mark.parametrize(
    ("together", "sentences"),
    [
        (None, ["One.", "Two!", "Three.", "Four.", "Five."]),
        (1, ["One.", "Two!", "Three.", "Four.", "Five."]),
        (2, ["One.", "Two!", "Three.", "Four.  Five."]),
        (3, ["One. Two! Three.", "Four.  Five."]),
    ],
)
def test_what_the_model_reads_together_stays_together(together, sentences):
    text = "One. Two! Three.\nFour.  Five."
    cut = coded_sentences(text, "en", together=together)
    assert list(cut.texts) == sentences and cut.joined(cut.texts) == text


@pytest.mark.parametrize(
    ("text", "blanks", "translated"),
    [
        # The source has no blank there, and the translation does.
        ("我喜欢猫。他喜欢狗。", True, "A B"),
        ("我喜欢猫。\u3000他喜欢狗。", True, "A B"),
        ("One.  Two.", True, "A B"),
        ("One. Two.", False, "AB"),
        (" One.\n\n\tTwo. Three.\n", True, " A\n\n\tB C\n"),
        (" One.\n\n\tTwo. Three.\n", False, " A\n\n\tBC\n"),
        ("One.\tTwo.", False, "A\tB"),
        # Halves of a word, and characters of a text that has none.
        ("a" * 1500, True, "AB"),
        ("猫" * 1500, True, "A B"),
        ("猫" * 1500, False, "AB"),
        ("", True, ""),
        (" \n", True, " \n"),
    ],
)
def test_translations_are_joined_as_the_target_is_written(text, blanks, translated):
    cut = coded_sentences(text, "zh" if "。" in text else "en")
    assert cut.translated("ABC"[: len(cut.texts)], blanks=blanks) == translated


def test_a_sentence_translated_by_nothing_leaves_no_blank_but_its_line():
    cut = coded_sentences("One. Two.\nThree. Four.", "en")
    assert cut.translated(["A", "", "", "D"], blanks=True) == "A\nD"
    assert cut.translated(["", "", "C", "D"], blanks=True) == "\nC D"


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
        # As in `translate`, a code is no part of a quotation, and comes before a number.
        (
            ">>fra<< “One. Two.” Three.\nFour.",
            [">>fra<< One.", ">>fra<< Two.", ">>fra<< Three.", ">>fra<< Four."],
        ),
        (">>fra<< One.\n>>deu<<“Two. Three.”", [">>fra<< One.", ">>deu<< Two.", ">>deu<< Three."]),
        (">>deu<< 1. We go.", [">>deu<< 1. We go."]),
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


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("Hello.\n>>fra<<\n\nBye.", "A\n\n\nB"),
        ("Hello.\n\n>>fra<<\nBye.\n>>deu<<\n", "A\n\n\nB\n\n"),
        (">>fra<<\n“Hello. Bye.”\n>>deu<<", "\n“A B”\n"),
        (">>fra<< “Hello. Bye.” Then.", "“A B” C"),
        (">>fra<<\n", "\n"),
    ],
)
def test_layout_around_a_code_stays(text, translated):
    cut = coded_sentences(text, "en", codes=CODES)
    assert cut.translated("ABC"[: len(cut.texts)], blanks=True) == translated


def test_a_long_line_is_cut_behind_its_code():
    cut = coded_sentences(f">>fra<< 1. We “go. {'We stay. ' * 120}I go.”", "en", codes=CODES)
    assert cut.texts[0] == ">>fra<< 1. We “go." and cut.codes[:2] == ("", ">>fra<<")


def test_a_tag_holds_for_all_that_follows_too():
    cut = coded_sentences("<2de> One. Two.\n<2fr> Three.", "en", codes={"<2de>", "<2fr>"})
    assert cut.texts == ("<2de> One.", "Two.", "<2fr> Three.")
    assert cut.codes == ("", "<2de>", "")
    cut = coded_sentences("<2de> “One. Two.”", "en", codes={"<2de>"})
    assert (cut.texts, cut.codes) == (("One.", "Two."), ("<2de>", "<2de>"))
