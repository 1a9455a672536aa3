"""Phrases that a translation must not contain, however its tokens spell them.

An automaton reads a hypothesis's text and bans pieces that would complete a phrase, in any
segmentation, byte pieces too. Phrases are whole words: no letter or digit stands next to one at
their ends, except in scripts without blanks between words. Any run of blanks is one.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import regex
from jaxtyping import Array, Bool, Int

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, Vocabulary
from flaxformer_mt.decoding.batch_shapes import power_of_two_at_least
from flaxformer_mt.decoding.rules import Index, Tokens, TypeMask
from flaxformer_mt.decoding.segments import DecodingError, encode

LETTER = regex.compile(
    r"[[\p{L}\p{M}\p{N}_]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]",
    regex.V1,
)
"""A character that makes a longer word of the word it stands next to."""
MOST_BYTES = 1 << 30  # of a batch's table
_DEAD = -1
_BYTE = regex.compile("<0x([0-9A-F]{2})>")

# What a byte of a text is: the first of a letter, of another character, of a blank, a further byte
# of its character, or one that a byte piece stands for, whose character is not known.
_LETTER, _OTHER, _BLANK, _INNER, _RAW = range(5)
_Symbol = tuple[int, int]  # a byte and which of these it is


class Reading(NamedTuple):
    """What matters of the text so far."""

    places: frozenset[int]  # bytes of `_Phrases.text` before which the text's end may stand
    in_word: bool = False
    at_blank: bool = True


class Forbidden(NamedTuple):
    """An automaton that reads the symbols of tokens; it begins in state 0."""

    # The next state; -1: a phrase would be complete.
    # The last row is that state's; the last symbol changes nothing.
    moves: Int[np.ndarray, "states symbols"]
    completes: Bool[np.ndarray, " states"]  # a phrase is complete unless its last word goes on
    spelled: Int[np.ndarray, "vocab longest"]  # each type's symbols, for all automata the same


class TooManyForbidden(DecodingError):
    """Phrases whose table would be larger than MOST_BYTES."""


@functools.lru_cache(maxsize=32)
def forbidden(phrases: tuple[str, ...], vocabulary: Vocabulary) -> Forbidden:
    """The automaton of texts without any of `phrases`. Raises DecodingError for a blank one."""
    encode(vocabulary, phrases)  # which raises for text that isn't Unicode
    normal = [vocabulary.normalize(phrase).strip() for phrase in phrases]
    if not all(normal):
        raise DecodingError(f"the forbidden phrase {phrases[normal.index('')]!r} is blank")
    spelled, alphabet = _spelled(vocabulary)
    moves, completes = _automaton([phrase.encode() for phrase in normal], alphabet)
    moves = np.concatenate([moves, np.arange(len(moves))[:, None]], axis=1)
    moves = np.concatenate([moves, np.full_like(moves[:1], _DEAD)]).astype(_kind(len(completes)))
    return Forbidden(moves, completes, spelled)


def _kind(numbers: int) -> type[np.signedinteger[Any]]:
    return np.int16 if numbers <= 1 << 15 else np.int32


def _automaton(
    phrases: Sequence[bytes], alphabet: Sequence[_Symbol]
) -> tuple[Int[np.ndarray, "states symbols"], Bool[np.ndarray, " states"]]:
    """Each state's transitions, and whether a phrase ends in it."""
    text = b"\0".join(phrases) + b"\0"
    ends = frozenset(np.cumsum([len(phrase) + 1 for phrase in phrases]) - 1)
    starts = frozenset({0, *(end + 1 for end in ends)}) - {len(text)}
    # A phrase whose last character is no letter is complete as soon as it is there.
    open_ends = {
        end
        for end, phrase in zip(sorted(ends), phrases, strict=True)
        if LETTER.fullmatch(phrase.decode()[-1])
    }

    def step(state: Reading, byte: int, kind: int) -> Reading | None:
        if kind == _BLANK and state.at_blank:
            return state
        places = state.places
        if not (kind == _INNER or (kind == _LETTER and state.in_word)):  # between words
            if places & ends:
                return None
            places |= starts
        places = frozenset(place + 1 for place in places - ends if text[place] == byte)
        if places & ends - open_ends:
            return None
        in_word = kind == _LETTER or (kind == _INNER and state.in_word)
        return Reading(places, in_word, kind == _BLANK)

    # Bytes that no phrase has are alike.
    alike = [(byte if byte in text else -1, kind) for byte, kind in alphabet]
    numbers = {Reading(frozenset()): 0}
    states = [Reading(frozenset())]
    rows = []
    for state in states:  # which grow as they are found
        known: dict[_Symbol, int] = {}
        for symbol in set(alike):
            after = step(state, *symbol)
            if after is not None and after not in numbers:
                numbers[after] = len(states)
                states.append(after)
            known[symbol] = _DEAD if after is None else numbers[after]
        rows.append([known[symbol] for symbol in alike])
    return np.array(rows), np.array([bool(state.places & ends) for state in states])


@functools.lru_cache(maxsize=4)
def _spelled(
    vocabulary: Vocabulary,
) -> tuple[Int[np.ndarray, "vocab longest"], list[_Symbol]]:
    """Each type's text as symbol numbers, padded with the number after the last."""
    kinds = vocabulary.types()
    # After a piece of text a leading blank is not lost.
    first = next(number for number, kind in enumerate(kinds) if kind.plain)
    before, *texts = vocabulary.decode([[first], *([first, n] for n in range(len(kinds)))])
    spelled = []
    for kind, text in zip(kinds, texts, strict=True):
        found = None if kind.plain else _BYTE.fullmatch(kind.text)
        if found and (byte := int(found[1], 16)) >= 128:
            spelled.append([(byte, _RAW)])
        else:
            spelled.append(_symbols(chr(byte) if found else text.removeprefix(before)))
    alphabet = sorted({symbol for each in spelled for symbol in each})
    number = {symbol: place for place, symbol in enumerate(alphabet)}
    longest = max(map(len, spelled))
    table = np.full((len(spelled), longest), len(alphabet), np.int16)
    for row, each in zip(table, spelled, strict=True):
        row[: len(each)] = [number[symbol] for symbol in each]
    return table, alphabet


def _symbols(text: str) -> list[_Symbol]:
    found: list[_Symbol] = []
    for character in text:
        if character.isspace():  # a line break is written as a blank
            found.append((ord(" "), _BLANK))
            continue
        first, *rest = character.encode()
        kind = _LETTER if LETTER.fullmatch(character) else _OTHER
        found += [(first, kind), *((byte, _INNER) for byte in rest)]
    return found


def continues_word(vocabulary: Vocabulary) -> Bool[np.ndarray, " vocab"]:
    """Which types continue a word that ends before them; bytes may."""
    spelled, alphabet = _spelled(vocabulary)
    kinds = np.array([kind for _, kind in alphabet] + [_BLANK])
    found: np.ndarray = np.isin(kinds[spelled[:, 0]], (_LETTER, _RAW))
    found[[PAD, BOS, EOS]] = False
    return found


def table_of(
    automata: Sequence[Forbidden], types: Int[np.ndarray, " kept"], suppress: Sequence[int]
) -> tuple[Int[np.ndarray, "states kept"], dict[int, int]]:
    """One table of the automata for a vocabulary of these types, and by `id` where each begins.

    An entry is twice the next state, plus 1 if a phrase is complete there unless its word goes on;
    -1 is banned. State 0 bans nothing. Raises TooManyForbidden for a table above a gibibyte.
    """
    distinct = {id(automaton): automaton for automaton in automata}
    sizes = [len(automaton.completes) for automaton in distinct.values()]
    starts = np.cumsum([1, *sizes[:-1]]).tolist()
    begins = dict(zip(distinct, starts, strict=True))
    size = power_of_two_at_least(1 + sum(sizes))  # few programs
    kind = _kind(2 * size)
    if (total := kind().itemsize * size * len(types)) > MOST_BYTES:
        need = f"{total / 2**30:.1f} GiB, more than {MOST_BYTES / 2**30:.1f}"
        what = "its forbidden phrases need a table of"
        raise TooManyForbidden(f"{what} {need}: give it fewer")
    table = np.zeros((size, len(types)), kind)
    free = ~np.isin(types, (PAD, BOS, *suppress))
    for number, automaton in distinct.items():
        completes = automaton.completes
        offset = begins[number]
        goes, effect = _effects(automaton, types)
        some = np.unique(effect[free])
        while True:
            # A complete phrase's word must have a way to go on, and to end after that.
            after = goes[:, some]
            ways = (after >= 0) & ~completes[after]
            stuck = np.append(completes & ~ways.any(axis=1), False)  # the dead state comes last
            if not stuck[goes].any():
                break
            goes = np.where(stuck[goes], _DEAD, goes)
        entries = np.where(goes >= 0, 2 * (goes + offset) + completes[goes], _DEAD)
        own = table[offset : offset + len(completes)]
        own[:] = entries.astype(kind)[:, effect]
    return table, begins


def _effects(
    automaton: Forbidden, types: Int[np.ndarray, " kept"]
) -> tuple[Int[np.ndarray, "states effects"], Int[np.ndarray, " kept"]]:
    """The state after each state by effect, and the effect that each type has.

    There are few: what came before a type matters only while it continues a phrase.
    """
    moves = automaton.moves
    symbols = moves.shape[1]
    effects = np.arange(len(automaton.completes), dtype=moves.dtype)[None]
    effect = np.zeros(len(types), int)
    for column in automaton.spelled[types].T:
        pairs = effect * symbols + column
        present = np.flatnonzero(np.bincount(pairs))
        before, symbol = np.divmod(present, symbols)
        known: dict[bytes, int] = {}
        number = np.zeros(present[-1] + 1, int)
        number[present] = [
            known.setdefault(after.tobytes(), len(known))
            for after in moves[effects[before], symbol[:, None]]
        ]
        effect = number[pairs]
        effects = np.frombuffer(b"".join(known), moves.dtype)
        effects = effects.reshape(len(known), -1)
    end = np.where(automaton.completes, _DEAD, 0)
    effect[types == EOS] = len(effects)
    effects = np.concatenate([effects, end[None]])
    return effects.astype(np.int32).T, effect


def completes_phrase(
    begins: Int[Array, "rows automata"],
    table: Int[Array, "states vocab"],
    tokens: Tokens,
    position: Index,
    limits: Int[Array, " rows"],
) -> TypeMask:
    """The types that, as token number `position`, would complete a forbidden phrase."""

    def read(place: Array, states: Array) -> Array:
        token = jax.lax.dynamic_index_in_dim(tokens, place, axis=2)
        return jnp.maximum(table[states, token].astype(jnp.int32) // 2, 0)

    states = jnp.broadcast_to(begins[:, None], (*tokens.shape[:2], begins.shape[1]))
    states = jax.lax.fori_loop(0, position, read, states)
    # The end mark has to be next but one: a word that must go on could not.
    last = (position + 2 >= limits)[:, None, None]
    banned = jnp.zeros((*tokens.shape[:2], table.shape[1]), bool)
    for each in range(begins.shape[1]):
        entries = table[states[:, :, each]]
        banned |= (entries < 0) | (last & (entries % 2 == 1))
    return banned


def forbids(automaton: Forbidden, tokens: Sequence[int], *, room: int) -> bool:
    """Whether every output that begins with `tokens` and has `room` more has a phrase."""
    state = 0
    for symbol in automaton.spelled[list(tokens)].flat:
        state = int(automaton.moves[state, symbol])
    return state == _DEAD or (bool(automaton.completes[state]) and room < 2)
