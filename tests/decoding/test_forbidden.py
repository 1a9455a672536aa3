"""Phrases that no translation has, whatever tokens spell them."""

from collections.abc import Iterator

import numpy as np
import pytest
import regex

from flaxformer_mt.config import VocabularyConfig
from flaxformer_mt.data import vocabulary
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding.constraints.forbidden import forbidden, forbids
from flaxformer_mt.decoding.constraints.symbols import LETTER
from flaxformer_mt.decoding.errors import DecodingError, LineError
from flaxformer_mt.decoding.masks import forbidden as module
from flaxformer_mt.decoding.masks.forbidden import table_of
from flaxformer_mt.decoding.search.sampling import Sampling
from tests.decoding.runs import LINES


def has(text: str, phrase: str) -> bool:
    """By a regular expression over the text, whose blanks are one."""
    letter = r"[[\p{L}\p{M}\p{N}_]--\p{Han}]"
    pattern = regex.escape(phrase)
    if regex.match(letter, phrase, regex.V1):
        pattern = f"(?<!{letter}){pattern}"
    if regex.match(letter, phrase[-1], regex.V1):
        pattern = f"{pattern}(?!{letter})"
    return regex.search(pattern, " ".join(text.split()), regex.V1) is not None


PHRASES = ["a", "ab", "a ab", "ab hä", "ä", "hä", "é", "-", "a.", "東京", "京 a", "der Hund"]


def random_tokens(german, rng: np.random.Generator, count: int) -> Iterator[list[int]]:
    """Random outputs of letters in PHRASES; some letters are spelled in bytes."""
    pieces = german.pieces()
    letters = [[pieces.index(f"<0x{b:02X}>") for b in letter.encode()] for letter in "éä東a"]
    plain = [
        number
        for number, kind in enumerate(german.types())
        if kind.plain and set(kind.text) <= set("▁abhä.-東京")
    ]
    phrase = german.encode(["der Hund"])[0]
    for _ in range(count):
        units = [[int(rng.choice(plain))] for _ in range(rng.integers(1, 9))]
        for unit in (letters[rng.integers(4)], phrase):
            if rng.random() < 0.2:
                units.insert(rng.integers(len(units) + 1), unit)
        yield [token for unit in units for token in unit]


def test_an_automaton_reads_what_a_text_contains():
    lines = ["der Hund", "ab aba", "ab-a", "hä ä", "a.", "東京 a"] * 9
    german = vocabulary.train(lines, VocabularyConfig(size=295, byte_fallback=True))
    times_forbidden = dict.fromkeys(PHRASES, 0)
    for tokens in random_tokens(german, np.random.default_rng(0), 3000):
        (text,) = german.decode([tokens])
        in_byte_pieces = any(piece[:3] == "<0x" for piece in german.pieces(tokens))
        by_phrase = {
            phrase: forbids(forbidden((phrase,), german), tokens, room=1) for phrase in PHRASES
        }
        for phrase, is_forbidden in by_phrase.items():
            # Next to a byte piece, whose letter is not known, a word may be one by itself.
            exact = not in_byte_pieces
            assert is_forbidden >= has(text, phrase), (text, german.pieces(tokens), phrase)
            assert is_forbidden == has(text, phrase) or not exact, (text, phrase)
            times_forbidden[phrase] += is_forbidden
        # All together know more of what a byte piece continues than each alone.
        together = forbids(forbidden(tuple(PHRASES), german), tokens, room=1)
        by_any = any(by_phrase.values())
        assert any(has(text, phrase) for phrase in PHRASES) <= together <= by_any
        assert together == by_any or in_byte_pieces
    assert min(times_forbidden.values()) > 5, times_forbidden


@pytest.fixture(scope="module")
def spelling():
    """A vocabulary with all bytes and two letters beside."""
    lines = ["der Hund", "cafe"] * 9
    return vocabulary.train(lines, VocabularyConfig(size=285, byte_fallback=True))


def in_bytes(text: str, german) -> list[int]:
    return [german.pieces().index(f"<0x{byte:02X}>") for byte in text.encode()]


@pytest.mark.parametrize("character", list("äßéя×—•東ि।ア가\u0301\u00a0"))
def test_bytes_after_a_phrase_decide_whether_its_word_goes_on(spelling, character):
    """Banned are the bytes that make no letter, and the end before a letter is complete."""
    automaton = forbidden(("der Hund",), spelling)
    phrase, (*inner, last) = spelling.encode(["der Hund"])[0], in_bytes(character, spelling)
    goes_on = regex.match(LETTER.pattern, character, regex.V1) is not None
    assert forbids(automaton, [*phrase, *inner, last], room=9) != goes_on
    if goes_on:
        assert not forbids(automaton, [*phrase, *inner], room=9)
        assert forbids(automaton, [*phrase, *inner], room=1)
        after = spelling.encode(["der Hund"])[0][-1:]
        assert forbids(automaton, [*phrase, *inner, *after], room=9)
        assert not forbids(automaton, [*phrase, *inner, last, *after], room=9)


def test_a_word_that_only_bytes_continue_needs_room_for_them(spelling):
    """The end mark comes only after the last byte of a letter."""
    automaton = forbidden(("der Hund",), spelling)
    bytes_ = in_bytes("".join(map(chr, range(0x900, 0x940))) + "\u00e4", spelling)
    types = np.unique([PAD, BOS, EOS, UNK, *spelling.encode(["der Hund"])[0], *bytes_])
    table, begins = table_of([automaton], types, (UNK,))
    phrase = np.searchsorted(types, spelling.encode(["der Hund"])[0])
    state = begins[id(automaton)]
    for token in phrase:
        entry = int(table[state, token])
        state = entry // 4
    assert entry % 4 >= 1
    three = np.searchsorted(types, in_bytes("\u0905", spelling))
    needs = []
    for token in three:
        entry = int(table[state, token])
        state = entry // 4
        needs.append(entry % 4)
    assert needs == [2, 1, 0]


@pytest.mark.parametrize("letter", "中ひカกກកကཀ")
def test_a_phrase_of_a_script_without_blanks_may_be_part_of_a_word(letter):
    known = vocabulary.train([f"a{letter} {letter}b"] * 9, VocabularyConfig(size=10))
    (tokens,) = known.encode([f"a {letter}{letter}"])
    assert forbids(forbidden((letter,), known), tokens, room=1)
    assert LETTER.match("й") and LETTER.match("가")


@pytest.mark.parametrize(
    ("phrase", "written"),
    [
        ("caf\u00e9", "cafe\u0301"),
        ("cafe\u0301", "caf\u00e9"),
        ("\u1ead", "\u00e2\u0323"),  # a circumflex, then a dot below
        ("\u1ead", "a\u0302\u0323"),
        ("\u00e9\u00e9", "e\u0301\u00e9"),
        ("\uac00", "\u1100\u1161"),
    ],
)
def test_a_phrase_is_forbidden_in_canonically_equivalent_forms(phrase, written):
    lines = [f"a {phrase} b {written}", "cafe e"] * 9
    known = vocabulary.train(lines, VocabularyConfig(size=24))
    for text, banned in ((written, True), (phrase, True), (f"{written}b", False), ("cafe", False)):
        (tokens,) = known.encode([f"a {text}"])
        assert UNK not in tokens
        assert forbids(forbidden((phrase,), known), tokens, room=1) == banned, text


def test_a_table_has_what_reading_symbol_by_symbol_gives(translator):
    """For a batch's types; what is kept for a phrase doesn't grow with the vocabulary."""
    german = translator.vocabularies.tgt
    every = [forbidden(phrases, german) for phrases in (("katze", "die ka"), ("hund .",))]
    types = np.array([PAD, BOS, EOS, UNK, *range(5, german.size, 2)])
    table, begins = table_of([*every, every[0]], types, (UNK,))
    for automaton in every:
        start, states = begins[id(automaton)], len(automaton.completes)
        entries = table[start : start + states]
        assert automaton.moves.size < states * 60 and automaton.spelled is every[0].spelled
        for state, column in np.ndindex(entries.shape):
            after = state
            for symbol in automaton.spelled[types[column]]:
                after = automaton.moves[after, symbol]
            if types[column] == EOS:
                after = -1 if automaton.completes[state] else 0
            entry = -1 if after < 0 else 4 * (start + after) + automaton.completes[after]
            assert entries[state, column] == entry


def test_a_table_that_is_too_large_is_made_for_fewer_lines_at_a_time(translator, monkeypatch):
    of_lines = [["die"], ["ein hund"], ["wer", "haus"], ["sie"]]
    together = translator.translate(LINES, forbid_each=of_lines)
    monkeypatch.setattr(module, "MOST_BYTES", 2000)
    assert translator.translate(LINES, forbid_each=of_lines) == together
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    with pytest.raises(
        LineError, match="forbidden phrases need a table of .* give it fewer"
    ) as why:
        translator.translate(LINES, forbid_each=[["die"], [], ["wer", "haus"], ["sie"]])
    assert why.value.number == 2


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"beam_size": 1}, {}),
        ({}, {"n_best": 4}),
        ({"no_repeat_ngram": 2, "diverse_groups": 2, "diversity": 0.5}, {"n_best": 2}),
        ({}, {"n_best": 4, "sampling": Sampling(seed=3)}),
    ],
)
def test_no_translation_has_a_forbidden_phrase(translator, changes, asked):
    """What an unhindered search says is forbidden, again and again: of all lines, and of its own
    for one."""
    translator = translator.with_config(**changes)
    shared, of_lines = [], [[] for _ in LINES]
    for _ in range(4):
        translations = translator.translate(LINES, forbid=shared, forbid_each=of_lines, **asked)
        for number, translation in enumerate(translations):
            for hypothesis in translation.hypotheses:
                assert not any(
                    has(hypothesis.text, phrase) for phrase in (*shared, *of_lines[number])
                )
        for number, translation in enumerate(translations):
            new = " ".join(translation.text.split()[:2]) or "."
            (of_lines[number] if number % 2 else shared).append(new)
    assert all(of_lines[1::2]) and len(shared) == 8


def test_a_phrase_that_only_a_longer_word_may_follow_has_room_for_it(translator):
    """At the limit an output has to end: no word is left there as a forbidden one."""
    short = translator.with_config(max_ratio=0, max_extra_tokens=3)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    for translation in short.translate(LINES, forbid=letters, n_best=4):
        for hypothesis in translation.hypotheses:
            assert not any(has(hypothesis.text, letter) for letter in letters)


def test_what_cannot_be_forbidden_is_an_error(translator):
    with pytest.raises(DecodingError, match="' ' is blank"):
        translator.translate(LINES, forbid=[" "])
    with pytest.raises(LineError, match="is blank") as raised:
        translator.translate(LINES, forbid_each=[[], [], [""], []])
    assert raised.value.number == 2
    with pytest.raises(LineError, match="prefix has a forbidden phrase") as raised:
        translator.translate(
            LINES, prefixes=["die", "die katze ist", "katze", ""], forbid="die katze"
        )
    assert raised.value.number == 1
