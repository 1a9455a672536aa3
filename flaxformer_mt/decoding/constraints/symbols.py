"""Each type of a vocabulary as the symbols that automata read: its bytes, and what these are."""

import functools
import itertools

import numpy as np
import regex
from jaxtyping import Bool, Int

from flaxformer_mt.config.languages import SPACED_LETTER
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, Type, Vocabulary

LETTER = regex.compile(SPACED_LETTER, regex.V1)
"""A character that makes a longer word of the word it stands next to."""
_BYTE_PIECE = regex.compile("<0x([0-9A-F]{2})>")

# What a byte of a text is: the first of a letter, of another character, of a blank, a further byte
# of its character, or one that a byte piece stands for, whose character is not known.
LETTER_BYTE, OTHER_BYTE, BLANK_BYTE, INNER_BYTE, RAW_BYTE = range(5)
Symbol = tuple[int, int]  # a byte and which of these it is

Continues = Bool[np.ndarray, " vocab"]
"""Which types continue a word: as the next token, they would make a phrase part of one."""


@functools.lru_cache(maxsize=4)
def symbols_of_types(
    vocabulary: Vocabulary,
) -> tuple[Int[np.ndarray, "vocab longest"], list[Symbol]]:
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


def _symbols_of_type(kind: Type, text: str) -> list[Symbol]:
    """Of a type that stands for `text`; a byte piece above ASCII stands for its byte."""
    byte_piece = None if kind.plain else _BYTE_PIECE.fullmatch(kind.text)
    if byte_piece is None:
        return _symbols(text)
    byte = int(byte_piece[1], 16)
    return _symbols(chr(byte)) if byte < 128 else [(byte, RAW_BYTE)]


def _symbols(text: str) -> list[Symbol]:
    symbols: list[Symbol] = []
    for character in text:
        if character.isspace():  # a line break is written as a blank
            symbols.append((ord(" "), BLANK_BYTE))
            continue
        first, *further = character.encode()
        kind = LETTER_BYTE if LETTER.fullmatch(character) else OTHER_BYTE
        symbols += [(first, kind), *((byte, INNER_BYTE) for byte in further)]
    return symbols


def continues_word(vocabulary: Vocabulary) -> Continues:
    """Which types continue a word that ends before them; bytes may."""
    spelled, alphabet = symbols_of_types(vocabulary)
    kinds = np.array([kind for _, kind in alphabet] + [BLANK_BYTE])
    continues: Continues = np.isin(kinds[spelled[:, 0]], (LETTER_BYTE, RAW_BYTE))
    continues[[PAD, BOS, EOS]] = False
    return continues
