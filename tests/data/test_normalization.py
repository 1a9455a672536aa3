"""Normalisation: the rules are Unicode's, and live in the model."""

import itertools
import sys
import unicodedata
from typing import Literal

import pytest
import sentencepiece
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.normalization import Form, rules
from flaxformer_mt.data.vocabulary import train

Unicode = Literal["nfc", "nfkc"]
FORMS = pytest.mark.parametrize("form", ["nfc", "nfkc"])

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
LETTERS = [*"aeiouyAEOUncszwdlqx", "ê", "ô", "ơ", "ư", "ạ", "é", "α", "ω", "ὁ", "и", "І", "ɔ"]
MARKS = [chr(point) for point in (*range(0x300, 0x30D), 0x323, 0x327, 0x328, 0x331)]
# A letter, and marks that stand on it two at a time. U+0305 is in no precomposed letter.
ORDERED = {
    "م": map(chr, range(0x64B, 0x653)),
    "ש": map(chr, range(0x5B0, 0x5BD)),
    "ɔ": [mark for mark in MARKS if mark != "\u0305"],
}


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


@FORMS
def test_every_character_becomes_what_unicode_says(form):
    table, name = rules(form), form.upper()
    for character in map(chr, (*range(0xD800), *range(0xE000, sys.maxunicode + 1))):
        after = unicodedata.normalize(name, character)
        expected = " " if after.isspace() else after
        if table.get(character, character) != expected:
            assert character in "\u200b\u2060\ufeff" and table[character] == ""


@FORMS
@pytest.mark.parametrize("spelling", ["NFC", "NFD", "NFKC", "NFKD"])
def test_real_text_in_any_spelling_becomes_what_unicode_says(form, spelling):
    spelled = [unicodedata.normalize(spelling, text) for text in TEXTS]
    assert [apply(form, text) for text in spelled] == [canonical(form, text) for text in spelled]


@FORMS
def test_marks_compose_with_their_letter_and_stand_in_unicode_s_order(form):
    for letter in LETTERS:
        for base in {letter, unicodedata.normalize("NFD", letter)}:
            for first in MARKS:
                assert apply(form, base + first) == canonical(form, base + first)
                if canonical(form, base + first) != base + first and len(base) == 1:
                    texts = [base + first + second for second in MARKS]
                    assert [apply(form, x) for x in texts] == [canonical(form, x) for x in texts]
    for letter, marks in ORDERED.items():
        texts = [letter + "".join(two) + letter for two in itertools.permutations(marks, 2)]
        assert [apply(form, text) for text in texts] == [canonical(form, text) for text in texts]


@FORMS
@settings(max_examples=150, deadline=None)
@given(
    st.text(st.sampled_from([*LETTERS, *MARKS, *MARKS, "\u3099", "か", "ﬁ", "\uff76", "각"])),
    st.text(st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3), max_size=9),
)
def test_uncovered_text_keeps_letters_and_marks_and_hangul_composes(form, text, hangul):
    assert canonical(form, apply(form, text)) == canonical(form, text)
    assert apply(form, unicodedata.normalize("NFD", hangul)) == hangul


@pytest.fixture(scope="module", params=["blanks", "nfc", "nfkc"])
def trained(request):
    sentences = [unicodedata.normalize("NFD", text) for text in TEXTS] + [ODD, "a b c"] * 3
    config = VocabularyConfig(size=900, normalization=request.param, byte_fallback=True)
    return request.param, train(sentences, config)


def test_the_model_applies_the_rules(trained):
    form, vocabulary = trained
    decomposed = [unicodedata.normalize("NFD", text) for text in TEXTS]
    for text in [*TEXTS, *decomposed, ODD]:
        expected = " ".join(apply(form, text).split())
        assert vocabulary.normalize(text) == expected
        assert vocabulary.decode(vocabulary.encode([text])) == [expected]
    composed = [unicodedata.normalize("NFC", text) for text in TEXTS]
    encodes_alike = vocabulary.encode(composed) == vocabulary.encode(decomposed)
    assert encodes_alike == (form != "blanks") == (len(rules(form)) > 40)


def test_the_model_applies_the_rules_without_this_program(trained):
    """It names no file of the trainer's."""
    _, vocabulary = trained
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.model)
    assert processor.encode(ODD) == processor.encode(PLAIN) == vocabulary.encode([PLAIN])[0]
    assert b"/tmp" not in vocabulary.model and b".tsv" not in vocabulary.model


@pytest.mark.parametrize("form", ["blanks", "nfc", "nfkc"])
def test_joiners_that_have_a_meaning_stay(form):
    """In Persian, and in an emoji made of two; a soft hyphen stays, too."""
    text = "می\u200cخواهم \U0001f469\u200d\U0001f4bb \u00ad"
    assert apply(form, text) == text and apply(form, ODD) == PLAIN
