"""Phrases that an output must not contain, however its tokens spell them."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from flaxformer_mt.data.vocabulary import Vocabulary
from flaxformer_mt.decoding.constraints.automata import DEAD, automaton_of, spellings_of
from flaxformer_mt.decoding.constraints.symbols import symbols_of_types
from flaxformer_mt.decoding.errors import DecodingError
from flaxformer_mt.decoding.text.segments import encode


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
    spelled, alphabet = symbols_of_types(vocabulary)
    moves, completes = automaton_of(spellings_of(normal), alphabet)
    moves = np.concatenate([moves, np.arange(len(moves))[:, None]], axis=1)
    moves = np.concatenate([moves, np.full_like(moves[:1], DEAD)]).astype(
        entry_kind(len(completes))
    )
    return Forbidden(moves, completes, spelled)


def forbids(automaton: Forbidden, tokens: Sequence[int], *, room: int) -> bool:
    """Whether every output that begins with `tokens` and has `room` more has a phrase."""
    state = 0
    for symbol in automaton.spelled[list(tokens)].flat:
        state = int(automaton.moves[state, symbol])
    return state == DEAD or (bool(automaton.completes[state]) and room < 2)


def entry_kind(numbers: int) -> type[np.signedinteger[Any]]:
    """The smallest type of as many numbers."""
    return np.int16 if numbers <= 1 << 15 else np.int32
