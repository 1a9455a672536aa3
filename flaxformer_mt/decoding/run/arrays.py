"""The host arrays of a batch: its sources, and what each is searched with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flaxformer_mt.data.vocabulary import PAD
from flaxformer_mt.decoding.constraints.phrases import Phrase
from flaxformer_mt.decoding.constraints.symbols import Continues
from flaxformer_mt.decoding.errors import LineError, TooManyPhrases
from flaxformer_mt.decoding.masks.base import Ban, MaskArrays
from flaxformer_mt.decoding.rounding import power_of_two_at_least
from flaxformer_mt.decoding.run.checks import takes_phrases
from flaxformer_mt.decoding.search.banks import (
    Phrases,
    arranged,
    in_larger_arrays,
    none_of,
    room_for,
)
from flaxformer_mt.decoding.search.sampling import SEED_WORDS, seed_words
from flaxformer_mt.decoding.search.settings import Rules
from flaxformer_mt.decoding.search.state import SearchRows
from flaxformer_mt.decoding.source import Source, Types

_NOTHING = MaskArrays(rows=None, shared=None)  # of a mask that bans nothing in a batch


@dataclasses.dataclass(frozen=True)
class ConstraintSizes:
    """Sizes of a batch's arrays of required and forbidden phrases, which are compiled in."""

    phrases: int  # of a sentence
    tokens: int  # of a phrase
    states: int  # of a mask's table, such as that of forbidden phrases

    def has_room_for(self, phrases: Sequence[Phrase]) -> bool:
        """Whether there is room for the required phrases of one sentence, if it has any."""
        count, tokens = room_for([phrases]) if phrases else (0, 0)
        return count <= self.phrases and tokens <= self.tokens

    def describe(self) -> str:
        """For a sentence that has no room: how much it may have."""
        return (
            f"a sentence takes at most {self.phrases} required phrases of {self.tokens} tokens "
            f"and about {self.states:,} letters of forbidden phrases: give it fewer or shorter "
            "ones"
        )


class BatchArrays(NamedTuple):
    """What a search begins with."""

    src: Any  # token ids [rows, src_length]
    src_lengths: Any  # [rows]
    rows: SearchRows


class FilledBatch(NamedTuple):
    """A batch's arrays, and what all its rows share; as `SearchNumbers` has it."""

    arrays: BatchArrays
    mask_shared: tuple[Any, ...]
    continues: Continues | None


def empty_arrays(
    rows: int, src_length: int, *, prefix: int = 0, mask_count: int = 0
) -> BatchArrays:
    """Host arrays of an empty batch, to be filled in, with room for `prefix` tokens of a prefix;
    `mask_count` masks ban nothing there."""
    by_name: Any = {
        "limits": np.zeros(rows, np.int32),
        "prefix": np.full((rows, prefix), PAD, np.int32),
        "seeds": np.zeros((rows, SEED_WORDS), np.uint32),
        "mask_rows": (None,) * mask_count,
    }
    src = np.full((rows, src_length), PAD, np.int32)
    return BatchArrays(src, np.zeros(rows, np.int32), SearchRows(**by_name))


class Constraints(NamedTuple):
    """What a batch's outputs must and must not have, as host arrays."""

    bans: tuple[Ban, ...]  # of `Rules.all_masks`
    phrases: Phrases | None
    continues: Continues | None  # with phrases: which of the search's types continue a word

    @property
    def is_empty(self) -> bool:
        """Whether sources have neither required phrases nor what needs a table, such as forbidden
        ones."""
        return self.phrases is None and not any(ban.states for ban in self.bans)

    def fit(self, sizes: ConstraintSizes) -> bool:
        """Whether arrays of these sizes have room for them."""
        count, tokens = (0, 0) if self.phrases is None else self.phrases.tokens.shape[1:]
        states = max(ban.states for ban in self.bans)
        return count <= sizes.phrases and tokens <= sizes.tokens and states <= sizes.states

    def joined(self, arrays: BatchArrays) -> FilledBatch:
        """With these, the arrays of a batch."""
        of_masks = [ban.arrays or _NOTHING for ban in self.bans]
        rows = arrays.rows._replace(
            mask_rows=tuple(of_mask.rows for of_mask in of_masks), phrases=self.phrases
        )
        mask_shared = tuple(of_mask.shared for of_mask in of_masks)
        return FilledBatch(arrays._replace(rows=rows), mask_shared, self.continues)


@dataclasses.dataclass(frozen=True)
class BatchFiller:
    """Fills in batches' arrays; phrases take the first of `sizes` that has room for them, or, with
    none, as much as they need."""

    rules: Rules
    seed: int  # of sampling
    sizes: Sequence[ConstraintSizes] = ()

    def check(self, number: int, source: Source) -> None:
        """Raises LineError for a source whose required phrases fit none of the `sizes`: no smaller
        batch has more room for them. (A smaller batch may help if `fill` finds a table too large,
        since all sources of a batch share it.)"""
        if self.sizes and not any(sizes.has_room_for(source.phrases) for sizes in self.sizes):
            raise LineError(number, self.sizes[-1].describe())

    def fill(
        self,
        sources: Sequence[Source],
        limits: Sequence[int],
        types: Types,
        shape: tuple[int, int],
        continues: Continues | None,
    ) -> FilledBatch:
        """The arrays of a batch of `shape` (rows, source length), in the search's own ids of the
        `types`; the outputs of each source have at most so many tokens as `limits` say. Raises
        TooManyPhrases for tables that are too large, or for which `sizes` have no room."""
        widest = max(len(source.prefix) for source in sources)
        width = power_of_two_at_least(widest) if widest else 0  # compiled in: few of them
        src, src_lengths, rows = empty_arrays(*shape, prefix=width)
        for row, (source, limit) in enumerate(zip(sources, limits, strict=True)):
            length = len(source.tokens)
            src_lengths[row] = length
            src[row, :length] = source.tokens
            rows.limits[row] = limit
            rows.prefix[row, : len(source.prefix)] = np.searchsorted(types, source.prefix)
            if self.rules.sampling:
                rows.seeds[row] = seed_words(self.seed, *source.number)

        bans = self._bans(sources, types, shape)
        constraints = Constraints(bans, None, None)
        if continues is not None and any(source.phrases for source in sources):
            phrases = arranged([source.phrases for source in sources], types, shape[0], continues)
            constraints = Constraints(bans, phrases, continues[types])
        if self.sizes and not constraints.is_empty:
            constraints = self._in_first_sizes(constraints, len(types), shape)
        return constraints.joined(BatchArrays(src, src_lengths, rows))

    def empty(
        self, shape: tuple[int, int], types: int, sizes: ConstraintSizes | None = None
    ) -> FilledBatch:
        """The arrays of a batch of padding, with room for constraints if these have `sizes`."""
        constraints = Constraints(self._bans((), np.arange(types), shape), None, None)
        if sizes is not None:
            constraints = self._in_sizes(constraints, sizes, types, shape)
        return constraints.joined(empty_arrays(*shape))

    def _bans(
        self, sources: Sequence[Source], types: Types, shape: tuple[int, int]
    ) -> tuple[Ban, ...]:
        """All masks with their arrays for a batch of these sources."""
        return tuple(Ban(mask, mask.arrays(sources, types, shape)) for mask in self.rules.all_masks)

    def _in_first_sizes(
        self, constraints: Constraints, types: int, shape: tuple[int, int]
    ) -> Constraints:
        """The constraints in the first of the sizes that has room for them."""
        for sizes in self.sizes:
            if constraints.fit(sizes):
                return self._in_sizes(constraints, sizes, types, shape)
        raise TooManyPhrases(self.sizes[-1].describe())

    def _in_sizes(
        self,
        constraints: Constraints,
        sizes: ConstraintSizes,
        types: int,
        shape: tuple[int, int],
    ) -> Constraints:
        """The constraints in arrays of these sizes; without required phrases if the search has
        something that these don't work with."""
        bans = tuple(ban.in_states(sizes.states, types, shape) for ban in constraints.bans)
        if not takes_phrases(self.rules):
            return Constraints(bans, None, None)

        continues, phrases = constraints.continues, constraints.phrases
        if continues is None:
            continues = np.zeros(types, bool)
        if phrases is None:
            phrases = none_of(shape[0], sizes.phrases, sizes.tokens, continues)
        else:
            phrases = in_larger_arrays(phrases, sizes.phrases, sizes.tokens, continues)
        return Constraints(bans, phrases, continues)
