"""Automata that read texts byte by byte and die where a phrase is complete.

They find a phrase in any segmentation of its text, byte pieces too, and in any canonically
equivalent form. Phrases are whole words: no letter or digit stands next to one at their ends,
except in scripts without blanks between words. Any run of blanks is one.
"""

import dataclasses
import functools
import itertools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import regex
from jaxtyping import Bool, Int

from flaxformer_mt.decoding.constraints.symbols import (
    BLANK_BYTE,
    INNER_BYTE,
    LETTER,
    LETTER_BYTE,
    RAW_BYTE,
    Symbol,
)

DEAD = -1  # the state after a phrase
_MOST_MARKS = 3  # on a letter, whose order and composition may vary
_CLUSTER = regex.compile(r"\X")


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


def spellings_of(phrases: Sequence[str]) -> Spellings:
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
        if kind == BLANK_BYTE and state.at_blank:
            return state
        at_end = bool(state.places & self.phrases.ends)
        if kind == RAW_BYTE and (state.begun or at_end):
            return self._in_bytes(state, byte)
        if state.begun:  # what byte pieces have begun is no character
            return None
        inside_word = kind == INNER_BYTE or (kind == LETTER_BYTE and state.in_word)
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
        in_word = kind == LETTER_BYTE or (kind == INNER_BYTE and state.in_word)
        return Reading(after, in_word, kind == BLANK_BYTE)

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


def automaton_of(
    phrases: Spellings, alphabet: Sequence[Symbol]
) -> tuple[Int[np.ndarray, "states symbols"], Bool[np.ndarray, " states"]]:
    """Each state's transitions, and whether a phrase ends in it."""
    reader = _Reader(phrases)
    # Bytes that no phrase has are alike.
    known_bytes = {*phrases.byte}
    alike = [
        (byte if byte in known_bytes or kind == RAW_BYTE else -2, kind) for byte, kind in alphabet
    ]
    numbers = {Reading(frozenset()): 0}
    states = [Reading(frozenset())]
    rows = []
    for state in states:  # which grow as they are found
        known: dict[Symbol, int] = {}
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
