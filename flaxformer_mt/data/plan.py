"""Which pairs stand together in a batch: a pure function of (seed, epoch, lengths, budget).

"Sentence pairs were batched together by approximate sequence length" (section 5.1), with shapes
from a short fixed list: each is compiled once. The shapes form a chain, each at least as long on
both sides as the one before, so that what is left over in one bucket fits the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int32, Int64, Integer

from flaxformer_mt.config.schema import BatchConfig

Lengths = Integer[np.ndarray, " pairs"]

# Candidate lengths a side among which the chain of shapes is chosen. The search takes its fourth
# power in time and memory: at most about half a second and 100 MB, once a run.
_LEVELS = 48


class PlanError(ValueError):
    """No batch plan is possible for these lengths and this budget."""


@dataclasses.dataclass(frozen=True, order=True)
class Shape:
    """A batch's rows and its two sequence lengths."""

    rows: int
    src_length: int
    tgt_length: int

    @property
    def positions(self) -> int:
        """Positions of both sides, padding included."""
        return self.rows * (self.src_length + self.tgt_length)


@dataclasses.dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch, in order.

    Batch i has shape `shapes[shape_of[i]]` and the pairs `pairs[starts[i]:starts[i + 1]]`.
    """

    shapes: tuple[Shape, ...]
    shape_of: Int64[np.ndarray, " batches"]
    starts: Int64[np.ndarray, " batches_and_one"]
    pairs: Int32[np.ndarray, " pairs"]

    def __len__(self) -> int:
        return len(self.shape_of)

    def __getitem__(self, index: int) -> tuple[Shape, Int32[np.ndarray, " pairs_of_batch"]]:
        """The shape of a batch and its pairs: at most one batch has fewer than `rows`."""
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of a plan of {len(self)}")
        return (
            self.shapes[self.shape_of[index]],
            self.pairs[self.starts[index] : self.starts[index + 1]],
        )

    @property
    def positions(self) -> int:
        """Positions of all batches on both sides, padding included."""
        return sum(self.shapes[shape].positions for shape in self.shape_of)

    def padding(self, src_lengths: Lengths, tgt_lengths: Lengths) -> float:
        """The share of positions on both sides that hold no token."""
        tokens = int(src_lengths.sum(dtype=np.int64) + tgt_lengths.sum(dtype=np.int64))
        return 1.0 - tokens / self.positions


def shapes_for(src_lengths: Lengths, tgt_lengths: Lengths, batch: BatchConfig) -> tuple[Shape, ...]:
    """At most `max_shapes` nested shapes that hold every pair with the least padding.

    A shape's rows are the largest multiple of `batch.multiple` with which neither side exceeds
    `batch.tokens` positions. The last shape holds the longest sentences of both sides.

    Raises:
      PlanError: there are no pairs, or one `multiple` of rows of the longest exceeds the budget.
    """
    if len(src_lengths) == 0:
        raise PlanError("there are no pairs to batch")
    src_levels = _levels(src_lengths)
    tgt_levels = _levels(tgt_lengths)
    longest = max(src_levels[-1], tgt_levels[-1])
    if longest * batch.multiple > batch.tokens:
        raise PlanError(
            f"{batch.multiple} rows (data.batch.multiple) of the longest pair, {longest} tokens, "
            f"take {longest * batch.multiple:,} positions and data.batch.tokens is "
            f"{batch.tokens:,}: raise it, or lower data.filter.max_length or data.batch.multiple"
        )
    # One state for each pair of candidate lengths, in an order in which nested shapes ascend.
    src_grid, tgt_grid = (
        grid.ravel() for grid in np.meshgrid(src_levels, tgt_levels, indexing="ij")
    )
    holds = _pairs_within(src_lengths, tgt_lengths, src_levels, tgt_levels).ravel()
    rows = batch.tokens // np.maximum(src_grid, tgt_grid) // batch.multiple * batch.multiple
    chain = _cheapest_chain(src_grid, tgt_grid, holds, rows, batch.max_shapes)
    return tuple(Shape(int(rows[i]), int(src_grid[i]), int(tgt_grid[i])) for i in chain)


def plan_epoch(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    shapes: Sequence[Shape],
    seed: int,
    epoch: int,
) -> EpochPlan:
    """Every pair exactly once: shuffled, cut into batches bucket by bucket, batches shuffled.

    A pair's bucket is the first shape that holds it. What does not fill a batch moves up into the
    next bucket, so that only the last bucket can end in a partial batch. The number of batches
    of each shape does not depend on seed and epoch.

    Raises:
      PlanError: a pair fits none of the shapes.
    """
    random = np.random.Philox(np.random.SeedSequence((seed, epoch)))
    bucket = _buckets(src_lengths, tgt_lengths, shapes)
    order = _random_order(random, bucket)
    plan = _cut(order, np.bincount(bucket, minlength=len(shapes)), tuple(shapes))
    turn = _random_order(random, np.zeros(len(plan), np.uint8))
    sizes = np.diff(plan.starts)
    starts = np.zeros_like(plan.starts)
    np.cumsum(sizes[turn], out=starts[1:])
    # Position p of the shuffled plan comes from p shifted by its batch's move.
    moved = np.repeat(plan.starts[turn] - starts[:-1], sizes[turn])
    pairs = plan.pairs[moved + np.arange(len(order))]
    return EpochPlan(plan.shapes, plan.shape_of[turn], starts, pairs)


def plan_pass(src_lengths: Lengths, tgt_lengths: Lengths, shapes: Sequence[Shape]) -> EpochPlan:
    """Every pair exactly once in order of length: for validation, the same at each call.

    Raises:
      PlanError: a pair fits none of the shapes.
    """
    bucket = _buckets(src_lengths, tgt_lengths, shapes)
    order = np.lexsort((src_lengths, tgt_lengths, bucket)).astype(np.int32)
    return _cut(order, np.bincount(bucket, minlength=len(shapes)), tuple(shapes))


def _levels(lengths: Lengths) -> Int64[np.ndarray, " levels"]:
    """Candidate lengths: those that cut the side's tokens into equal shares, and the longest."""
    counts = np.bincount(lengths)
    values = np.flatnonzero(counts)
    tokens = np.cumsum(values * counts[values])
    shares = np.searchsorted(tokens, np.arange(1, _LEVELS + 1) / _LEVELS * tokens[-1])
    return values[np.unique(np.minimum(shares, len(values) - 1))]


def _pairs_within(
    src_lengths: Lengths, tgt_lengths: Lengths, src_levels: Lengths, tgt_levels: Lengths
) -> Int64[np.ndarray, "src_levels tgt_levels"]:
    """How many pairs a shape of each two candidate lengths holds."""
    cells = np.searchsorted(src_levels, src_lengths) * len(tgt_levels)
    cells += np.searchsorted(tgt_levels, tgt_lengths)
    counts = np.bincount(cells, minlength=len(src_levels) * len(tgt_levels))
    return counts.reshape(len(src_levels), len(tgt_levels)).cumsum(0).cumsum(1)


def _cheapest_chain(
    src_grid: Int64[np.ndarray, " states"],
    tgt_grid: Int64[np.ndarray, " states"],
    holds: Int64[np.ndarray, " states"],
    rows: Int64[np.ndarray, " states"],
    max_shapes: int,
) -> list[int]:
    """The chain of states, ending in the last, that takes the fewest positions.

    Dynamic programming over the number of shapes. A step from one shape to the next costs the
    positions of the pairs that only the next one holds, and those which about half a batch of
    left-over pairs takes more there.
    """
    width = src_grid + tgt_grid
    nested = (src_grid[:, None] <= src_grid) & (tgt_grid[:, None] <= tgt_grid)
    np.fill_diagonal(nested, False)
    left_over = np.minimum(rows / 2, holds)
    step: Float64[np.ndarray, "states states"] = np.where(
        nested,
        (holds - holds[:, None]) * width + left_over[:, None] * (width - width[:, None]),
        np.inf,
    )
    cost = (holds * width).astype(np.float64)
    costs, before = [cost], []
    for _ in range(max_shapes - 1):
        total = cost[:, None] + step
        before.append(total.argmin(axis=0))
        cost = total.min(axis=0)
        costs.append(cost)
    shapes = int(np.argmin([cost[-1] for cost in costs]))
    chain = [len(width) - 1]
    for previous in reversed(before[:shapes]):
        chain.append(int(previous[chain[-1]]))
    return chain[::-1]


def _buckets(
    src_lengths: Lengths, tgt_lengths: Lengths, shapes: Sequence[Shape]
) -> Int64[np.ndarray, " pairs"]:
    """The first shape that holds each pair."""
    src = np.searchsorted([shape.src_length for shape in shapes], src_lengths)
    tgt = np.searchsorted([shape.tgt_length for shape in shapes], tgt_lengths)
    bucket = np.maximum(src, tgt)
    if len(bucket) and bucket.max() >= len(shapes):
        pair = int(bucket.argmax())
        raise PlanError(
            f"pair {pair} with {src_lengths[pair]} source and {tgt_lengths[pair]} target tokens "
            f"fits none of the shapes; the longest is {shapes[-1]}"
        )
    return bucket


def _random_order(
    random: np.random.Philox, group: Integer[np.ndarray, " items"]
) -> Int32[np.ndarray, " items"]:
    """All items, group by group, in random order within each.

    From raw random bits, since for those alone NumPy promises the same stream in every version.
    Group, random bits and the item's own number make one sort key, which is quicker to sort than
    to permute and then to group.
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


def _cut(
    order: Int32[np.ndarray, " pairs"],
    counts: Int64[np.ndarray, " shapes"],
    shapes: tuple[Shape, ...],
) -> EpochPlan:
    """Batches of pairs that stand bucket by bucket; a bucket's rest begins the next one's."""
    starts, shape_of = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    start, last = 0, len(shapes) - 1
    for index, (shape, end) in enumerate(zip(shapes, np.cumsum(counts), strict=True)):
        batches = int(end - start) // shape.rows
        if index == last and start + batches * shape.rows < end:
            batches += 1
        starts.append(start + shape.rows * np.arange(batches))
        shape_of.append(np.full(batches, index))
        start += batches * shape.rows
    ends = np.array([len(order)], np.int64)
    return EpochPlan(shapes, np.concatenate(shape_of), np.concatenate([*starts, ends]), order)
