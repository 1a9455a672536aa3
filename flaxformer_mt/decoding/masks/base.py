"""Which types may be the next token: what every mask is, and how a search reads them all."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from flaxformer_mt.decoding.source import Source, Types
from flaxformer_mt.decoding.top_k import Logits as Logits

Index = Int[Array, ""]
Tokens = Int[Array, "rows beams length"]
TypeMask = Bool[Array, "rows beams vocab"]


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
    """A reason why some types may not be the next token.

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

    def banned(self, arrays: MaskArrays, generated: Generated) -> TypeMask | None:
        """On the device: the types that may not come next; None if it bans nothing."""
        ...


@dataclasses.dataclass(frozen=True)
class BatchMask:
    """A mask with what it reads in one batch."""

    mask: Mask
    rows: Any  # as `MaskArrays.rows`; None: it bans nothing in this batch
    shared: Any  # as `MaskArrays.shared`

    @classmethod
    def of(cls, mask: Mask, arrays: MaskArrays | None) -> BatchMask:
        """A mask with what its `arrays` gave."""
        return cls(mask, *(arrays or (None, None)))

    @property
    def arrays(self) -> MaskArrays | None:
        """What the mask reads; None: it bans nothing in this batch."""
        return None if self.rows is None else MaskArrays(self.rows, self.shared)

    def banned(self, generated: Generated) -> TypeMask | None:
        """As `Mask.banned`."""
        return None if self.arrays is None else self.mask.banned(self.arrays, generated)


class Allowed(NamedTuple):
    """Which types may be the next token: `only`, or any of `free` that is not `banned`."""

    only: Int[Array, " rows"]  # the one type that may come; -1: several may
    free: np.ndarray  # [vocab] bool; known when the search is compiled
    banned: TypeMask | None

    def of_beams(self, beams: slice) -> Allowed:
        """The same for some of the hypotheses."""
        banned = self.banned
        return self._replace(banned=None if banned is None else banned[:, beams])

    def without(self, banned: TypeMask | None) -> Allowed:
        """The same without types that are `banned`; these may lack the last columns, which pad a
        TPU's logits."""
        if banned is None:
            return self
        padding = len(self.free) - banned.shape[2]
        if padding:
            banned = jnp.pad(banned, ((0, 0), (0, 0), (0, padding)))
        return self._replace(banned=banned if self.banned is None else self.banned | banned)

    def mask(self, beams: int) -> TypeMask:
        """All of it as one array."""
        free = jnp.asarray(self.free)[None, None]  # --> [1, 1, vocab]
        if self.banned is not None:
            free = free & ~self.banned  # --> [rows, beams, vocab]
        # A TPU would write out a mask by rows before it reads it for each beam.
        only = jnp.broadcast_to(self.only[:, None, None], (len(self.only), beams, 1))
        return jnp.where(only < 0, free, np.arange(len(self.free))[None, None] == only)
