"""Phrases that a translation must not contain, however its tokens spell them.

An automaton reads a hypothesis's text and bans pieces that would complete a phrase, in any
segmentation, byte pieces too, and in any canonically equivalent form. Phrases are whole words: no
letter or digit stands next to one at their ends, except in scripts without blanks between words.
Any run of blanks is one.
"""

import dataclasses
import functools
import itertools
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import regex
from jaxtyping import Bool, Int

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, Type, Vocabulary
from flaxformer_mt.decoding.text.segments import DecodingError, encode

LETTER = regex.compile(
    r"[[\p{L}\p{M}\p{N}_]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]",
    regex.V1,
)
"""A character that makes a longer word of the word it stands next to."""
_MOST_MARKS = 3  # on a letter, whose order and composition may vary
_CLUSTER = regex.compile(r"\X")
DEAD = -1
_BYTE = regex.compile("<0x([0-9A-F]{2})>")

# What a byte of a text is: the first of a letter, of another character, of a blank, a further byte
# of its character, or one that a byte piece stands for, whose character is not known.
_LETTER, _OTHER, _BLANK, _INNER, _RAW = range(5)
_Symbol = tuple[int, int]  # a byte and which of these it is


class Reading(NamedTuple):
    """What matters of the text so far."""

    places: frozenset[int]  # of `Spellings`, where the text's end may stand
    in_word: bool = False
    at_blank: bool = True
    # Since a phrase's last letter, byte pieces have begun a character: with a lead byte (a number),
    # or up to its last byte, of which these make a letter.
    begun: int | frozenset[int] = 0


class Spellings(NamedTuple):
    """All canonically equivalent forms of some phrases: places, each before a byte or at an end."""

    byte: Sequence[int]  # after a place; -1 at an end
    after: Sequence[frozenset[int]]  # the places after that byte
    starts: frozenset[int]
    ends: frozenset[int]
    open_ends: frozenset[int]  # after a letter: the phrase's last word may go on


class Forbidden(NamedTuple):
    """An automaton that reads the symbols of tokens; it begins in state 0."""

    # The next state; -1: a phrase would be complete.
    # The last row is that state's; the last symbol changes nothing.
    moves: Int[np.ndarray, "states symbols"]
    completes: Bool[np.ndarray, " states"]  # a phrase is complete unless its last word goes on
    spelled: Int[np.ndarray, "vocab longest"]  # each type's symbols, for all automata the same


@functools.lru_cache(maxsize=32)
def forbidden(phrases: tuple[str, ...], vocabulary: Vocabulary) -> Forbidden:
    """The automaton of texts without any of `phrases`. Raises DecodingError for a blank one."""
    encode(vocabulary, phrases)  # which raises for text that isn't Unicode
    normal = [vocabulary.normalize(phrase).strip() for phrase in phrases]
    if not all(normal):
        raise DecodingError(f"the forbidden phrase {phrases[normal.index('')]!r} is blank")
    spelled, alphabet = _spelled(vocabulary)
    moves, completes = _automaton(_spellings(normal), alphabet)
    moves = np.concatenate([moves, np.arange(len(moves))[:, None]], axis=1)
    moves = np.concatenate([moves, np.full_like(moves[:1], DEAD)]).astype(
        entry_kind(len(completes))
    )
    return Forbidden(moves, completes, spelled)


def entry_kind(numbers: int) -> type[np.signedinteger[Any]]:
    """The smallest type of as many numbers."""
    return np.int16 if numbers <= 1 << 15 else np.int32


def _spellings(phrases: Sequence[str]) -> Spellings:
    byte: list[int] = []
    after: list[frozenset[int]] = []

    def place(number: int, following: frozenset[int]) -> frozenset[int]:
        byte.append(number)
        after.append(following)
        return frozenset({len(byte) - 1})

    starts: frozenset[int] = frozenset()
    ends: frozenset[int] = frozenset()
    open_ends: frozenset[int] = frozenset()
    for phrase in phrases:
        end = following = place(-1, frozenset())
        for cluster in reversed(_CLUSTER.findall(unicodedata.normalize("NFD", phrase))):
            begins: frozenset[int] = frozenset()
            for form in equivalent_forms(cluster):
                next_places = following
                for number in reversed(form.encode()):
                    next_places = place(number, next_places)
                begins |= next_places
            following = begins
        starts |= following
        ends |= end
        if LETTER.fullmatch(phrase[-1]):
            open_ends |= end
    return Spellings(byte, after, starts, ends, open_ends)


def equivalent_forms(cluster: str) -> list[str]:
    """The canonically equivalent forms of a letter with its marks, in which text is written: with
    marks in any order, and the first ones composed with the letter."""
    decomposed = unicodedata.normalize("NFD", cluster)
    forms = {cluster: None, decomposed: None, unicodedata.normalize("NFC", cluster): None}
    if len(decomposed) <= _MOST_MARKS + 1:
        for marks in itertools.permutations(decomposed[1:]):
            text = decomposed[:1] + "".join(marks)
            for size in range(1, len(text) + 1):
                form = unicodedata.normalize("NFC", text[:size]) + text[size:]
                if unicodedata.normalize("NFD", form) == decomposed:
                    forms[form] = None
    return list(forms)


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reads texts byte by byte; a step gives None where a phrase would be complete."""

    phrases: Spellings

    def step(self, state: Reading, byte: int, kind: int) -> Reading | None:
        if kind == _BLANK and state.at_blank:
            return state
        at_end = bool(state.places & self.phrases.ends)
        if kind == _RAW and (state.begun or at_end):
            return self._in_bytes(state, byte)
        if state.begun:  # what byte pieces have begun is no character
            return None
        inside_word = kind == _INNER or (kind == _LETTER and state.in_word)
        if at_end and not inside_word:
            return None
        return self._in_text(state, byte, kind, inside_word=inside_word)

    def _in_text(
        self, state: Reading, byte: int, kind: int, *, inside_word: bool
    ) -> Reading | None:
        """After a character's byte; a phrase may begin at one that isn't inside a word."""
        places = state.places if inside_word else state.places | self.phrases.starts
        after = self._moved(places, byte)
        if after is None:
            return None
        in_word = kind == _LETTER or (kind == _INNER and state.in_word)
        return Reading(after, in_word, kind == _BLANK)

    def _in_bytes(self, state: Reading, byte: int) -> Reading | None:
        """After a phrase's last letter: its word goes on if the bytes make a letter."""
        after = self._moved(state.places, byte)
        if after is None:
            return None
        if isinstance(state.begun, frozenset):
            return Reading(after, True, False) if byte in state.begun else None
        if not state.begun and byte in _lead_bytes():
            return Reading(after, False, False, byte)
        prefix = bytes([state.begun, byte]) if state.begun else bytes([byte])
        last = _last_bytes().get(prefix)
        return Reading(after, False, False, last) if last else None

    def _moved(self, places: frozenset[int], byte: int) -> frozenset[int] | None:
        """The places after a byte; None if a phrase that ends in no letter is complete."""
        phrases = self.phrases
        matching = [phrases.after[place] for place in places if phrases.byte[place] == byte]
        after = frozenset().union(*matching)
        return None if after & phrases.ends - phrases.open_ends else after


def _automaton(
    phrases: Spellings, alphabet: Sequence[_Symbol]
) -> tuple[Int[np.ndarray, "states symbols"], Bool[np.ndarray, " states"]]:
    """Each state's transitions, and whether a phrase ends in it."""
    reader = _Reader(phrases)
    # Bytes that no phrase has are alike.
    known_bytes = {*phrases.byte}
    alike = [(byte if byte in known_bytes or kind == _RAW else -2, kind) for byte, kind in alphabet]
    numbers = {Reading(frozenset()): 0}
    states = [Reading(frozenset())]
    rows = []
    for state in states:  # which grow as they are found
        known: dict[_Symbol, int] = {}
        for symbol in set(alike):
            after = reader.step(state, *symbol)
            if after is not None and after not in numbers:
                numbers[after] = len(states)
                states.append(after)
            known[symbol] = DEAD if after is None else numbers[after]
        rows.append([known[symbol] for symbol in alike])
    completes = [bool(state.begun or state.places & phrases.ends) for state in states]
    return np.array(rows), np.array(completes)


@functools.cache
def _lead_bytes() -> frozenset[int]:
    """The first bytes of characters of three bytes that may be letters."""
    return frozenset(first_bytes[0] for first_bytes in _last_bytes() if len(first_bytes) == 2)


@functools.cache
def _last_bytes() -> dict[bytes, frozenset[int]]:
    """By a character's other bytes, the last ones that make it a letter.

    Of characters of two or three bytes: longer ones, of rare scripts and emoji, don't count as
    letters.
    """
    last_bytes: dict[bytes, set[int]] = {}
    for number in range(0x80, 0x10000):
        character = chr(number)
        if LETTER.match(character) and not 0xD800 <= number < 0xE000:
            *first_bytes, last = character.encode()
            last_bytes.setdefault(bytes(first_bytes), set()).add(last)
    return {first_bytes: frozenset(last) for first_bytes, last in last_bytes.items()}


@functools.lru_cache(maxsize=4)
def _spelled(
    vocabulary: Vocabulary,
) -> tuple[Int[np.ndarray, "vocab longest"], list[_Symbol]]:
    """Each type's text as symbol numbers, padded with the number after the last."""
    kinds = vocabulary.types()
    # After a piece of text a leading blank is not lost.
    first = next(number for number, kind in enumerate(kinds) if kind.plain)
    before, *texts = vocabulary.decode([[first], *([first, n] for n in range(len(kinds)))])
    spelled = [
        _symbols_of_type(kind, text.removeprefix(before))
        for kind, text in zip(kinds, texts, strict=True)
    ]
    alphabet = sorted(set(itertools.chain.from_iterable(spelled)))
    number = {symbol: place for place, symbol in enumerate(alphabet)}
    longest = max(map(len, spelled))
    table = np.full((len(spelled), longest), len(alphabet), np.int16)
    for row, symbols in zip(table, spelled, strict=True):
        row[: len(symbols)] = [number[symbol] for symbol in symbols]
    return table, alphabet


def _symbols_of_type(kind: Type, text: str) -> list[_Symbol]:
    """Of a type that stands for `text`; a byte piece above ASCII stands for its byte."""
    byte_piece = None if kind.plain else _BYTE.fullmatch(kind.text)
    if byte_piece is None:
        return _symbols(text)
    byte = int(byte_piece[1], 16)
    return _symbols(chr(byte)) if byte < 128 else [(byte, _RAW)]


def _symbols(text: str) -> list[_Symbol]:
    symbols: list[_Symbol] = []
    for character in text:
        if character.isspace():  # a line break is written as a blank
            symbols.append((ord(" "), _BLANK))
            continue
        first, *further = character.encode()
        kind = _LETTER if LETTER.fullmatch(character) else _OTHER
        symbols += [(first, kind), *((byte, _INNER) for byte in further)]
    return symbols


def continues_word(vocabulary: Vocabulary) -> Bool[np.ndarray, " vocab"]:
    """Which types continue a word that ends before them; bytes may."""
    spelled, alphabet = _spelled(vocabulary)
    kinds = np.array([kind for _, kind in alphabet] + [_BLANK])
    continues: np.ndarray = np.isin(kinds[spelled[:, 0]], (_LETTER, _RAW))
    continues[[PAD, BOS, EOS]] = False
    return continues


def forbids(automaton: Forbidden, tokens: Sequence[int], *, room: int) -> bool:
    """Whether every output that begins with `tokens` and has `room` more has a phrase."""
    state = 0
    for symbol in automaton.spelled[list(tokens)].flat:
        state = int(automaton.moves[state, symbol])
    return state == DEAD or (bool(automaton.completes[state]) and room < 2)
