"""Which sentences are decoded together, and in which of a few shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from flaxformer_mt.config import DecodingConfig

SHORTEST = 16  # source positions of the smallest batch shape
SHORTEST_ROOM = 32  # output positions of the smallest cache
FEWER = 4  # a batch moves to a shape of this many times fewer rows


@dataclasses.dataclass(frozen=True)
class DecodingBatch:
    """Which sources share a batch, and its shape; rows beyond them are padding."""

    sources: tuple[int, ...]
    rows: int
    src_length: int


def plan_batches(
    lengths: Sequence[int], config: DecodingConfig, max_length: int, *, split: int = 1
) -> Iterator[DecodingBatch]:
    """Batches over sources of these lengths, the longest first, in few shapes.

    A shape's length is a power of two (or `max_length`). Its rows are `split` equal parts, each the
    power of two that fills `batch_tokens` = rows * beams * length: one shape a length, and for the
    last batch one of fewer rows. A part may exceed the budget only with a single row.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    done = 0
    while done < len(order):
        rows, src_length = _largest(lengths[order[done]], config, max_length)
        sources = tuple(order[done : done + rows * split])
        filled = power_of_two_at_least(-(-len(sources) // split))
        yield DecodingBatch(sources, min(rows, filled) * split, src_length)
        done += len(sources)


def shapes_among(
    lengths: Sequence[int],
    config: DecodingConfig,
    max_length: int,
    *,
    split: int = 1,
    longest: int = 0,
) -> frozenset[tuple[int, int]]:
    """The shapes, (rows, source length), of batches over sources of these lengths, or over as many
    of which some are longer, up to `longest`.

    Where those that are longer do not fit into one batch, how many are left for a batch that begins
    with one of `lengths` is anyone's guess: it may have any number of rows.
    """
    planned = plan_batches(lengths, config, max_length, split=split)
    shapes = {(batch.rows, batch.src_length) for batch in planned}
    longer = longest > max(lengths, default=longest)
    if longer and _largest(longest, config, max_length)[0] * split < len(lengths):
        for rows, src_length in list(shapes):
            shapes |= {(fewer, src_length) for fewer in _halvings(rows, down_to=split)}
    return frozenset(shapes)


def _largest(length: int, config: DecodingConfig, max_length: int) -> tuple[int, int]:
    """Rows of a part, and source length, of a full batch whose longest source has this length."""
    needed = max(length, SHORTEST)
    src_length = min(power_of_two_at_least(needed), max(max_length, needed))
    rows = max(config.batch_tokens // (src_length * config.beam_size), 1)
    return 1 << (rows.bit_length() - 1), src_length


def _halvings(rows: int, *, down_to: int) -> Iterator[int]:
    while rows >= down_to:
        yield rows
        rows //= 2


def output_limit(config: DecodingConfig, source: int, longest: int) -> int:
    """How many tokens the output for so many source tokens may have, the end mark in both."""
    # Past `longest` a product could be beyond any integer.
    return min(int(min(config.max_ratio * source, longest)) + config.max_extra_tokens, longest)


def fewer_rows(rows: int, live: int) -> int:
    """The smallest number of rows that `rows` comes down to with room for `live` of them."""
    while rows // FEWER >= max(live, 1):
        rows //= FEWER
    return rows


def more_room(room: int, length: int) -> int:
    """The next size of a cache for outputs of at most `length` tokens; 0: the first."""
    return min(max(2 * room, SHORTEST_ROOM), length)


def power_of_two_at_least(number: int) -> int:
    return 1 << (number - 1).bit_length()
