"""Which types may be the next token: what every mask is, and how a search reads them all.

Each thing has one word:

- A mask (`Mask`) is a rule that bans types. It is the same in all batches and compiled in. `masks`
  are the caller's, as in `translate`; `Rules.all_masks` also has those that settings ask for.
- Its arrays (`MaskArrays`) are what it reads in one batch: `rows` have an entry per sentence, and
  `shared` is for all sentences. A search has those of all masks as `mask_rows` and `mask_shared`.
- A ban (`Ban`) is a mask with its arrays: the mask at work in one batch.
- Type flags (`TypeFlags`) are a boolean per hypothesis and type: whether it is banned, or allowed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from flaxformer_mt.decoding.source import Source, Types

Index = Int[Array, ""]
Tokens = Int[Array, "rows beams length"]
TypeFlags = Bool[Array, "rows beams vocab"]


class Generated(NamedTuple):
    """What a search has generated so far."""

    tokens: Tokens  # from `position` on padding
    position: Index  # of the next token
    limits: Int[Array, " rows"]  # tokens of an output, the end mark included
    vocab: int  # types that the next token is chosen from


class MaskArrays(NamedTuple):
    """What a mask reads on the device."""

    rows: Any = ()  # arrays whose first axis is a batch's rows
    shared: Any = None  # arrays that all rows share


@runtime_checkable
class Mask(Protocol):
    """A rule by which some types may not be the next token.

    Frozen and hashable, since it is compiled into the search; what differs between batches is in
    its arrays. The end mark stays allowed at a row's limit, whatever masks say.
    """

    def arrays(
        self, sources: Sequence[Source], types: Types, shape: tuple[int, int]
    ) -> MaskArrays | None:
        """Host arrays for a batch of `sources`, padded to `shape` (rows, source length); None if it
        bans nothing there.

        The search's ids number `types`, which are all of the vocabulary or a shortlist's.
        """
        ...

    def banned(self, arrays: MaskArrays, generated: Generated) -> TypeFlags | None:
        """On the device: the types that may not come next; None if it bans nothing."""
        ...


@runtime_checkable
class TableMask(Mask, Protocol):
    """A mask whose `MaskArrays.shared` is a table with a row for each state of an automaton.

    How many states a batch needs depends on its sentences, and the number is compiled in. So where
    programs are compiled beforehand, each table is padded to a fixed size.
    """

    def in_states(
        self, arrays: MaskArrays | None, states: int, types: int, shape: tuple[int, int]
    ) -> MaskArrays:
        """The arrays with a table of `states` states, at least as many as they have; None becomes
        arrays of that size that ban nothing. `types` and `shape` are the batch's."""
        ...


@dataclasses.dataclass(frozen=True)
class Ban:
    """A mask at work in one batch."""

    mask: Mask
    arrays: MaskArrays | None  # None: it bans nothing in this batch

    @property
    def states(self) -> int:
        """The states of its table; 0: it has none, or bans nothing in this batch."""
        if self.arrays is None or not isinstance(self.mask, TableMask):
            return 0
        return len(self.arrays.shared)

    def in_states(self, states: int, types: int, shape: tuple[int, int]) -> Ban:
        """The same with a table of `states` states, if the mask has a table."""
        if not isinstance(self.mask, TableMask):
            return self
        return Ban(self.mask, self.mask.in_states(self.arrays, states, types, shape))

    def banned(self, generated: Generated) -> TypeFlags | None:
        """As `Mask.banned`."""
        return None if self.arrays is None else self.mask.banned(self.arrays, generated)


class Allowed(NamedTuple):
    """Which types may be the next token: `only`, or any of `free` that is not `banned`."""

    only: Int[Array, " rows"]  # the one type that may come; -1: several may
    free: np.ndarray  # [vocab] bool; known when the search is compiled
    banned: TypeFlags | None

    def of_beams(self, beams: slice) -> Allowed:
        """The same for some of the hypotheses."""
        banned = self.banned
        return self._replace(banned=None if banned is None else banned[:, beams])

    def without(self, banned: TypeFlags | None) -> Allowed:
        """The same without types that are `banned`; these may lack the last columns, which pad a
        TPU's logits."""
        if banned is None:
            return self
        padding = len(self.free) - banned.shape[2]
        if padding:
            banned = jnp.pad(banned, ((0, 0), (0, 0), (0, padding)))
        return self._replace(banned=banned if self.banned is None else self.banned | banned)

    def flags(self, beams: int) -> TypeFlags:
        """Whether each type is allowed, as one array."""
        free = jnp.asarray(self.free)[None, None]  # --> [1, 1, vocab]
        if self.banned is not None:
            free = free & ~self.banned  # --> [rows, beams, vocab]
        # A TPU would write out flags by rows before it reads them for each beam.
        only = jnp.broadcast_to(self.only[:, None, None], (len(self.only), beams, 1))
        return jnp.where(only < 0, free, np.arange(len(self.free))[None, None] == only)
