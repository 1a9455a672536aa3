"""Normalisation: the rules are Unicode's, and live in the model."""

from __future__ import annotations

import itertools
import sys
import unicodedata
from typing import Any, Literal

import pytest
import sentencepiece
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.normalization import Form, rules
from flaxformer_mt.data.vocabulary import Vocabulary, train

Unicode = Literal["nfc", "nfkc"]

# Texts as keyboards, converters and file systems leave them, in several scripts.
TEXTS = [
    "Tiếng Việt: Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi.",
    "Ελληνικά πολυτονικό: Ἐν ἀρχῇ ἦν ὁ λόγος, καὶ ὁ λόγος ἦν πρὸς τὸν θεόν, ᾧ ᾳ ᾴ ᾷ ῗ",
    "Français: élève, garçon, cœur, où, naïve, ÀÉÎÕÜ; Deutsch: Größe, Übermäßig, Äpfel",
    "Čeština, Polski ąęłńóśźż, Magyar őű, Türkçe ğİı, Lietuvių ėįšųū, Româna ășț",
    "Русский: йцукен ёлка; Українська: їжак; Македонски ѓ ќ",
    "한국어: 모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다 값 닭",
    "日本語: がぎぐげご ぱぴぷぺぽ ガギグゲゴ ヴ パピプ",
    "हिन्दी: क़ ख़ ग़ ज़ ड़ ढ़ फ़ स्वतन्त्रता; বাংলা: ড় ঢ় য় কো কৌ; தமிழ்: கொ கோ கௌ",
    "العربية: آ أ إ ؤ ئ مُحَمَّد رَسُول; עברית: שָׁלוֹם בְּרֵאשִׁית",
    "ẁ ṩ ḍ̇ ǖ ǭ ȫ ṻ ậ ặ ở ữ ỗ ḉ ắ ẫ ḝ",
    "Å Ω K ℵ 〈〉 ｶﾞ ﾊﾟ ﬁ ½ ① Ａｂｃ ㎏ … ™ ² ĳ ﷺ ｡",
]
ODD = "a\u00a0b\u202fc\u2009d\u2007e\u3000f\tg\u2003h\u200bi\ufeffj\u2060k\u0085l\u2028m"
PLAIN = "a b c d e f g hijk l m"


def apply(form: Form, text: str) -> str:
    """What SentencePiece makes of a text by the rules, runs of blanks apart."""
    by_text = rules(form)
    out, place = [], 0
    while place < len(text):
        # A rule replaces at most a letter and three marks.
        lengths = range(min(4, len(text) - place), 0, -1)
        longest = next((n for n in lengths if text[place : place + n] in by_text), 1)
        piece = text[place : place + longest]
        out.append(by_text.get(piece, piece))
        place += longest
    return "".join(out)


def canonical(form: Unicode, text: str) -> str:
    return unicodedata.normalize(form.upper(), text)


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
def test_every_character_becomes_what_unicode_says(form: Unicode) -> None:
    table = rules(form)
    for point in range(sys.maxunicode + 1):
        if 0xD800 <= point < 0xE000 or (character := chr(point)) in "\u200b\u2060\ufeff":
            continue
        expected = "".join(" " if c.isspace() else c for c in canonical(form, character))
        assert table.get(character, character) == expected, hex(point)


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
@pytest.mark.parametrize("spelling", ["NFC", "NFD", "NFKC", "NFKD"])
def test_real_text_in_any_spelling_becomes_one(form: Unicode, spelling: Any) -> None:
    spelled = [unicodedata.normalize(spelling, text) for text in TEXTS]
    assert [apply(form, text) for text in spelled] == [canonical(form, text) for text in spelled]


LETTERS = [*"aeiouyAEOUncszwdlqx", "ê", "ô", "ơ", "ư", "ạ", "é", "α", "ω", "ὁ", "и", "І", "ɔ"]
MARKS = [chr(point) for point in (*range(0x300, 0x30D), 0x323, 0x327, 0x328, 0x331)]

POINTS = [[chr(point) for point in of] for of in (range(0x64B, 0x653), range(0x5B0, 0x5BD))]
# U+0305 is in no precomposed letter.
COMPOSING = [mark for mark in MARKS if mark != "\u0305"]


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
@pytest.mark.parametrize("spelling", ["NFC", "NFD"])
def test_letters_with_marks(form: Unicode, spelling: Any) -> None:
    composing = 0
    for letter in LETTERS:
        base = unicodedata.normalize(spelling, letter)
        for first in MARKS:
            assert apply(form, base + first) == canonical(form, base + first)
            if canonical(form, base + first) == base + first or len(base) > 1:
                continue
            composing += 1
            for second in MARKS:
                text = base + first + second
                assert apply(form, text) == canonical(form, text)
    assert composing > 150


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
@pytest.mark.parametrize(
    ("letter", "marks"),
    [("م", POINTS[0]), ("ש", POINTS[1]), ("ɔ", COMPOSING)],
)
def test_two_marks_of_a_letter_stand_in_unicodes_order(
    form: Unicode, letter: str, marks: list[str]
) -> None:
    texts = [letter + "".join(two) + letter for two in itertools.permutations(marks, 2)]
    assert [apply(form, text) for text in texts] == [canonical(form, text) for text in texts]
    assert sum(apply(form, text) != text for text in texts) > 20


@pytest.mark.parametrize("form", ["nfc", "nfkc"])
@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from([*LETTERS, *MARKS, *MARKS, "\u3099", "か", "ﬁ", "\uff76", "각"])))
def test_whatever_is_not_covered_keeps_its_letters_and_marks(form: Unicode, text: str) -> None:
    assert canonical(form, apply(form, text)) == canonical(form, text)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3), min_size=1, max_size=9))
def test_hangul_from_jamo(text: str) -> None:
    assert apply("nfc", unicodedata.normalize("NFD", text)) == text


@pytest.mark.parametrize("form", ["blanks", "nfc", "nfkc"])
def test_odd_blanks_become_plain_ones(form: Form) -> None:
    assert apply(form, ODD) == PLAIN
    # They mean something: Persian, and an emoji made of two.
    kept = "می\u200cخواهم \U0001f469\u200d\U0001f4bb \u00ad"
    assert apply(form, kept) == kept
    # Blanks alone leave letters as they are.
    odd = "e\u0301 ﬁ Å \u212b"
    assert (apply(form, odd) == odd) == (len(rules(form)) < 40) == (form == "blanks")


def model(form: Any, kind: Any = "bpe", size: int = 900) -> Vocabulary:
    sentences = [unicodedata.normalize("NFD", text) for text in TEXTS] + [ODD, "a b c"] * 3
    config = VocabularyConfig(kind=kind, size=size, normalization=form, byte_fallback=True)
    return train(sentences, config)


@pytest.fixture(scope="module", params=["blanks", "nfc", "nfkc"])
def trained(request: pytest.FixtureRequest) -> tuple[Form, Vocabulary]:
    return request.param, model(request.param)


def test_sentencepiece_applies_the_same_rules(trained: tuple[Form, Vocabulary]) -> None:
    form, vocabulary = trained
    for text in [*TEXTS, *(unicodedata.normalize("NFD", text) for text in TEXTS), ODD]:
        expected = " ".join(apply(form, text).split())
        assert vocabulary.normalize(text) == expected
        [tokens] = vocabulary.encode([text])
        assert vocabulary.decode([tokens]) == [expected]


def test_spellings_of_one_text_are_one_to_the_model(trained: tuple[Form, Vocabulary]) -> None:
    form, vocabulary = trained
    composed, decomposed = ([unicodedata.normalize(f, t) for t in TEXTS] for f in ("NFC", "NFD"))
    same = vocabulary.encode(composed) == vocabulary.encode(decomposed)
    assert same == (form != "blanks")
    assert vocabulary.encode([ODD]) == vocabulary.encode([PLAIN])
    # An exported model does the same without this program, and names no file of the trainer's.
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    assert processor.encode(ODD) == processor.encode(PLAIN)
    assert b"/tmp" not in vocabulary.model and b".tsv" not in vocabulary.model
    if form == "blanks":
        assert model(form).model == vocabulary.model


def test_training_with_rules_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    model("blanks", "unigram", 570)
    assert capfd.readouterr() == ("", "")
