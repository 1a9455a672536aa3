"""The paper's batching (section 5.1): one pair per row, pairs of similar length together.

Shapes come from a short fixed list, since each is compiled. They form a chain, each at least as
long on both sides as the one before, so that leftovers of a bucket fit the next.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int32, Int64

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.plan import Lengths, Plan, PlanError, Shape, random_order, rows_within
from flaxformer_mt.data.store import runs

# Candidate lengths per side. The search takes their fourth power: about half a second and 100 MB.
_LEVELS = 48


def shapes_for(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    batch: BatchConfig,
    counts: Int64[np.ndarray, " pairs"] | None = None,
) -> tuple[Shape, ...]:
    """At most `max_shapes` nested shapes that hold every pair with the least padding.

    `counts[i]` pairs (default 1) have these lengths. Rows as in `rows_within`. Raises PlanError.
    """
    if len(src_lengths) == 0:
        raise PlanError("there are no pairs to batch")
    src_levels = _levels(src_lengths, counts)
    tgt_levels = _levels(tgt_lengths, counts)
    rows_within(batch, max(src_levels[-1], tgt_levels[-1]))  # the longest pair's

    # A state for each two candidate lengths; nested shapes ascend.
    src_grid = np.repeat(src_levels, len(tgt_levels))
    tgt_grid = np.tile(tgt_levels, len(src_levels))
    cells = np.searchsorted(src_levels, src_lengths) * len(tgt_levels)
    cells += np.searchsorted(tgt_levels, tgt_lengths)
    in_cell = np.bincount(cells, counts, minlength=len(src_grid)).astype(np.int64)
    in_cell = in_cell.reshape(len(src_levels), -1)  # [source levels, target levels]
    holds = in_cell.cumsum(0).cumsum(1).ravel()  # [states]
    rows = batch.tokens // np.maximum(src_grid, tgt_grid) // batch.multiple * batch.multiple
    chain = _cheapest_chain(src_grid, tgt_grid, holds, rows, batch.max_shapes)
    return tuple(Shape(int(rows[i]), int(src_grid[i]), int(tgt_grid[i])) for i in chain)


def plan_buckets(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    shapes: Sequence[Shape],
    random: np.random.Philox,
) -> Plan:
    """Every pair exactly once: shuffled, cut into batches bucket by bucket, batches shuffled.

    Leftovers move up a bucket, so only the last can end in a partial batch. Raises PlanError.
    """
    bucket = _buckets(src_lengths, tgt_lengths, shapes)
    order = random_order(random, bucket)
    plan = _cut(order, np.bincount(bucket, minlength=len(shapes)), tuple(shapes))
    batch_order = random_order(random, np.zeros(len(plan), np.uint8))
    sizes = np.diff(plan.starts)[batch_order]
    starts = np.cumsum([0, *sizes])
    pairs = plan.pairs[runs(plan.starts[batch_order], sizes)]
    return Plan(plan.shapes, plan.shape_of[batch_order], starts, plan.row_starts, pairs)


def plan_pass(src_lengths: Lengths, tgt_lengths: Lengths, shapes: Sequence[Shape]) -> Plan:
    """Every pair exactly once in order of length, for validation. Raises as `plan_buckets` does."""
    bucket = _buckets(src_lengths, tgt_lengths, shapes)
    order = np.lexsort((src_lengths, tgt_lengths, bucket)).astype(np.int32)
    return _cut(order, np.bincount(bucket, minlength=len(shapes)), tuple(shapes))


def _levels(
    lengths: Lengths, counts: Int64[np.ndarray, " pairs"] | None
) -> Int64[np.ndarray, " levels"]:
    """Lengths that cut the side's tokens into equal shares, and the longest."""
    sentences_of_length = np.bincount(lengths, counts)
    occurring = np.flatnonzero(sentences_of_length)  # lengths, ascending
    tokens = np.cumsum(occurring * sentences_of_length[occurring])
    levels = np.searchsorted(tokens, np.arange(1, _LEVELS + 1) / _LEVELS * tokens[-1])
    return occurring[np.unique(np.minimum(levels, len(occurring) - 1))]


_States = Int64[np.ndarray, " states"]


def _cheapest_chain(
    src_grid: _States, tgt_grid: _States, holds: _States, rows: _States, max_shapes: int
) -> list[int]:
    """The chain of states, ending in the last, that takes the fewest positions.

    Dynamic programming over the number of shapes. The next shape costs the positions of pairs that
    only it holds, and the extra ones of about half a batch of leftovers.
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

    # Least costs of the chains that end in each state, by their number of shapes.
    costs = [(holds * width).astype(np.float64)]
    predecessors = []
    for _ in range(max_shapes - 1):
        total = costs[-1][:, None] + step  # [state before, state]
        predecessors.append(total.argmin(axis=0))
        costs.append(total.min(axis=0))

    last_state = len(width) - 1
    steps = int(np.argmin([cost[last_state] for cost in costs]))
    chain = [last_state]
    for predecessor in reversed(predecessors[:steps]):
        chain.append(int(predecessor[chain[-1]]))
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
            f"fits no shape; the longest is {shapes[-1]}"
        )
    return bucket


def _cut(
    order: Int32[np.ndarray, " pairs"],
    counts: Int64[np.ndarray, " shapes"],
    shapes: tuple[Shape, ...],
) -> Plan:
    """Batches of pairs ordered by bucket; a bucket's rest begins the next one's."""
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
    return Plan(
        shapes,
        np.concatenate(shape_of),
        np.concatenate([*starts, ends]),
        np.arange(len(order) + 1),
        order,
    )
