"""A window's batches, as `bucket` (one pair per row) and `pack` (several) return them.

A plan is a pure function of (seed, epoch, window, token lengths, budget).
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, Integer

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.errors import UserError

Lengths = Integer[np.ndarray, " pairs"]


class PlanError(UserError):
    """No batch plan is possible for these lengths and this budget."""


@dataclasses.dataclass(frozen=True, order=True)
class Shape:
    """A batch's rows and its two sequence lengths."""

    rows: int
    src_length: int
    tgt_length: int

    @property
    def positions(self) -> int:
        """Positions of both sides, with padding."""
        return self.rows * (self.src_length + self.tgt_length)


def rows_within(batch: BatchConfig, length: int) -> int:
    """The most rows of this many positions in a batch's budget. Raises PlanError for none."""
    rows = batch.tokens // length // batch.multiple * batch.multiple
    if rows == 0:
        raise PlanError(
            f"{batch.multiple} rows of {length} positions exceed data.batch.tokens = "
            f"{batch.tokens:,}: raise it, or lower data.filter.max_length or data.batch.multiple"
        )
    return rows


def longest(shapes: Sequence[Shape]) -> Shape:
    """The shape that needs most memory: attention grows with rows times length squared."""
    return max(shapes, key=lambda shape: (shape.src_length + shape.tgt_length, shape.rows))


class BatchRows(NamedTuple):
    """The rows of a batch: `counts[r]` pairs in row r, in order; other rows are padding."""

    pairs: Integer[np.ndarray, " pairs"]
    counts: Integer[np.ndarray, " rows"]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The batches of one window, in order.

    Batch i has shape `shapes[shape_of[i]]` and the rows `starts[i]` to `starts[i + 1]`; row r has
    the pairs `pairs[row_starts[r]:row_starts[r + 1]]`.
    """

    shapes: tuple[Shape, ...]
    shape_of: Int64[np.ndarray, " batches"]
    starts: Int64[np.ndarray, " batches_and_one"]
    row_starts: Int64[np.ndarray, " rows_and_one"]
    pairs: Int32[np.ndarray, " pairs"]

    def __len__(self) -> int:
        return len(self.shape_of)

    def __getitem__(self, index: int) -> tuple[Shape, BatchRows]:
        row_starts = self.row_starts[self.starts[index] : self.starts[index + 1] + 1]
        pairs = self.pairs[row_starts[0] : row_starts[-1]]
        return self.shapes[self.shape_of[index]], BatchRows(pairs, np.diff(row_starts))

    @property
    def positions(self) -> int:
        """Positions of all batches on both sides, with padding."""
        return sum(self.shapes[shape].positions for shape in self.shape_of)


def plan_bits(seed: int, epoch: int, window: int) -> np.random.Philox:
    """The random bits of a window's plan."""
    return np.random.Philox(np.random.SeedSequence((seed, epoch, window)))


def random_order(
    random: np.random.Philox, group: Integer[np.ndarray, " items"]
) -> Int32[np.ndarray, " items"]:
    """All items, group by group, in random order within each, by bits that NumPy never changes.

    Sorting keys of group, bits and item is faster than permuting, then grouping.
    """
    number_bits = max(len(group) - 1, 1).bit_length()
    group_bits = max(int(group.max(initial=0)), 1).bit_length()
    random_bits = 64 - group_bits - number_bits
    keys = random.random_raw(len(group)) >> np.uint64(64 - random_bits)
    keys |= group.astype(np.uint64) << np.uint64(random_bits)
    keys <<= np.uint64(number_bits)
    keys |= np.arange(len(group), dtype=np.uint64)
    keys.sort()
    return (keys & np.uint64((1 << number_bits) - 1)).astype(np.int32)
