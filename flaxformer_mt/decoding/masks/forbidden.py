"""The mask of forbidden phrases: one table of a batch's automata, read on the device."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD
from flaxformer_mt.decoding.constraints.automata import DEAD
from flaxformer_mt.decoding.constraints.forbidden import Forbidden, entry_kind
from flaxformer_mt.decoding.errors import TooManyPhrases
from flaxformer_mt.decoding.masks.base import Generated, Index, MaskArrays, Tokens, TypeFlags
from flaxformer_mt.decoding.rounding import power_of_two_at_least
from flaxformer_mt.decoding.source import Source, Types

MOST_BYTES = 1 << 30  # of a batch's table
_NEEDS = 4  # an entry of the table is so many times a state, plus the tokens that have to come


@dataclasses.dataclass(frozen=True)
class ForbiddenPhrases:
    """Bans the types that would complete a forbidden phrase of their row's source."""

    suppress: tuple[int, ...]  # never generated: an automaton can't count on them

    def arrays(
        self, sources: Sequence[Source], types: Types, shape: tuple[int, int]
    ) -> MaskArrays | None:
        """By rows the states in which their automata begin, of a table that they share. Raises
        TooManyPhrases."""
        automata = [automaton for source in sources for automaton in source.forbidden]
        if not automata:
            return None
        table, begins = table_of(automata, types, self.suppress)
        most = max(len(source.forbidden) for source in sources)
        states = np.zeros((shape[0], most), np.int32)
        for row, source in enumerate(sources):
            of_source = [begins[id(automaton)] for automaton in source.forbidden]
            states[row, : len(of_source)] = of_source
        return MaskArrays(rows=states, shared=table)

    def in_states(
        self, arrays: MaskArrays | None, states: int, types: int, shape: tuple[int, int]
    ) -> MaskArrays:
        """As `TableMask.in_states`; the table's type depends on `states` alone."""
        table = np.zeros((states, types), entry_type(states))
        if arrays is None:
            return MaskArrays(rows=np.zeros((shape[0], 1), np.int32), shared=table)
        table[: len(arrays.shared)] = arrays.shared
        return MaskArrays(rows=arrays.rows, shared=table)

    def banned(self, arrays: MaskArrays, generated: Generated) -> TypeFlags:
        """As `Mask.banned`."""
        return completes_phrase(
            arrays.rows,
            arrays.shared,
            generated.tokens,
            generated.position,
            generated.limits,
        )


def entry_type(states: int) -> type[np.signedinteger[Any]]:
    """The type of a table's entries, by the table's length."""
    return entry_kind(_NEEDS * states)


def table_of(
    automata: Sequence[Forbidden], types: Types, suppress: Sequence[int]
) -> tuple[Int[np.ndarray, "states kept"], dict[int, int]]:
    """One table of the automata for a vocabulary of these types, and by `id` where each begins.

    An entry is `_NEEDS` times the next state, plus how many tokens have to come before the end mark
    so that a phrase's last word goes on; -1 is banned. State 0 bans nothing. Raises
    TooManyPhrases for a table above a gibibyte.
    """
    distinct = {id(automaton): automaton for automaton in automata}
    sizes = [len(automaton.completes) for automaton in distinct.values()]
    starts = np.cumsum([1, *sizes[:-1]]).tolist()
    begins = dict(zip(distinct, starts, strict=True))
    size = power_of_two_at_least(1 + sum(sizes))  # few programs
    kind = entry_type(size)
    total = kind().itemsize * size * len(types)
    if total > MOST_BYTES:
        raise TooManyPhrases(
            f"its forbidden phrases need a table of {total / 2**30:.1f} GiB, more than "
            f"{MOST_BYTES / 2**30:.1f}: give it fewer"
        )
    table = np.zeros((size, len(types)), kind)
    free = ~np.isin(types, (PAD, BOS, *suppress))
    for number, automaton in distinct.items():
        completes = automaton.completes
        offset = begins[number]
        goes, effect = _effects(automaton, types)
        needs = _needs(goes[:, np.unique(effect[free])], completes)
        goes = np.where(needs[goes] < _NEEDS, goes, DEAD)
        entries = np.where(goes >= 0, _NEEDS * (goes + offset) + needs[goes], DEAD)
        table[offset : offset + len(completes)] = entries.astype(kind)[:, effect]
    return table, begins


def _needs(
    after: Int[np.ndarray, "states effects"], completes: Bool[np.ndarray, " states"]
) -> Int[np.ndarray, " states_and_dead"]:
    """How many tokens each state needs until no phrase is complete (_NEEDS: there is no way)."""
    needs = np.append(np.where(completes, _NEEDS, 0), _NEEDS)  # the dead state comes last
    for _ in range(1, _NEEDS):
        fewest = needs[after].min(axis=1, initial=_NEEDS)
        needs[:-1] = np.where(completes, np.minimum(fewest + 1, _NEEDS), 0)
    return needs


def _effects(
    automaton: Forbidden, types: Types
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
    end = np.where(automaton.completes, DEAD, 0)
    effect[types == EOS] = len(effects)
    effects = np.concatenate([effects, end[None]])
    return effects.astype(np.int32).T, effect


def completes_phrase(
    begins: Int[Array, "rows automata"],
    table: Int[Array, "states vocab"],
    tokens: Tokens,
    position: Index,
    limits: Int[Array, " rows"],
) -> TypeFlags:
    """The types that, as token number `position`, would complete a forbidden phrase."""

    def read(place: Array, states: Array) -> Array:
        token = jax.lax.dynamic_index_in_dim(tokens, place, axis=2)
        return jnp.maximum(table[states, token].astype(jnp.int32) // _NEEDS, 0)

    states = jnp.broadcast_to(begins[:, None], (*tokens.shape[:2], begins.shape[1]))
    states = jax.lax.fori_loop(0, position, read, states)
    # Tokens that may stand between the next one and the end mark.
    room = (limits - position - 2)[:, None, None]
    banned = jnp.zeros((*tokens.shape[:2], table.shape[1]), bool)
    for automaton in range(begins.shape[1]):
        entries = table[states[:, :, automaton]]  # --> [rows, beams, vocab]
        banned |= (entries < 0) | (entries % _NEEDS > room)
    return banned
