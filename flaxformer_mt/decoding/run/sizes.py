"""Batches for searching sources: few shapes, each compiled once."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.decoding.rounding import (
    one_of_few,
    power_of_two_at_least,
    power_of_two_at_most,
)

# `decoding.batch_tokens` if it is 0. By `plan --decode`, a step of base with 256 rows instead of 32
# takes an H100 twice as long (1.2 and 0.6 ms), but a TPU v5e five times (5.9 and 1.1 ms).
USUAL_TOKENS = 8192
GPU_TOKENS = 65_536
SHORTEST = 16  # source positions of the smallest batch shape
SHORTEST_ROOM = 32  # output positions of the smallest cache
COMPILES_FAST = ("cpu",)
SHRINKS = 4  # a batch on a CPU moves to a shape of so many times fewer rows
# On an accelerator, where programs take seconds to compile: the source positions of the smallest
# batch shape, the rows of a shard that has few sources, and the step to the next number of rows.
ACCELERATOR_SHORTEST = 64
ACCELERATOR_FEW = 8
ACCELERATOR_STEP = 8
SMALL = 1 << 23  # parameters up to which compiling takes longer than searching, on a CPU
BLOCK = 1024  # source tokens that a CPU encodes at a time: a layer's activations stay in its cache


class PlannedBatch(NamedTuple):
    """The numbers of sequences that share a batch, and its shape; other rows are padding."""

    numbers: tuple[int, ...]
    rows: int  # that are searched at a time
    length: int
    threads: int = 1  # that search `rows` each, side by side

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, padding included, and source length of the batch's arrays."""
        at_once = self.rows * self.threads
        return -(-len(self.numbers) // at_once) * at_once, self.length

    @property
    def by_row(self) -> Int[np.ndarray, " rows"]:
        """The number of each row of the arrays; -1: padding."""
        rows, _ = self.shape
        numbers = np.full(rows, -1)
        numbers[: len(self.numbers)] = self.numbers
        return numbers

    def of(self, numbers: tuple[int, ...]) -> PlannedBatch:
        """The same with some of its sequences."""
        threads = min(self.threads, -(-len(numbers) // self.rows))
        return self._replace(numbers=numbers, threads=threads)


def with_batch_tokens(config: DecodingConfig, platform: str) -> DecodingConfig:
    """The settings of a search on devices of this platform."""
    tokens = config.batch_tokens or (GPU_TOKENS if platform == "gpu" else USUAL_TOKENS)
    return dataclasses.replace(config, batch_tokens=tokens)


def plan_batches(
    lengths: Sequence[int], config: DecodingConfig, max_length: int, *, shards: int = 1
) -> Iterator[PlannedBatch]:
    """Batches over sources of these lengths, longest first, in few shapes: a length is a power of
    two (or `max_length`); the rows are `shards` equal shares, each the power of two that fills
    `batch_tokens` = rows * beams * length, or a single row. Only the last batch has fewer."""
    return in_batches(lengths, lambda most: _largest(most, config, max_length), shards=shards)


def plan_groups(
    lengths: Sequence[int], config: DecodingConfig, max_length: int, *, cores: int
) -> list[PlannedBatch]:
    """One batch per length, of few lengths, with all its sources, longest first.

    `rows` is how many are searched at a time: 4, 16, 64 ..., as far as `batch_tokens` goes. Their
    products leave cores idle, so there are up to as many threads as `cores`.
    """
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    rounded = [min(one_of_few(length, 2 * SHORTEST), max_length) for length in lengths]
    planned = []
    for length, group in itertools.groupby(order, rounded.__getitem__):
        numbers = tuple(group)
        rows = min(one_of_few(len(numbers), 4), _rows_within(config, length))
        threads = min(cores, -(-len(numbers) // rows))
        planned.append(PlannedBatch(numbers, rows, length, threads))
    return planned


def plan_even_batches(
    lengths: Sequence[int], config: DecodingConfig, max_length: int, *, shards: int = 1
) -> Iterator[PlannedBatch]:
    """Batches over sources of these lengths, longest first, in fewer shapes than `plan_batches`: a
    length is 64, 256, 1,024 ... (or `max_length`), and all batches of a length have as many rows,
    in each shard 8, 64 ... where that is enough for all sources, else those that fill
    `batch_tokens`."""
    count = -(-len(lengths) // shards)

    def largest(longest: int) -> tuple[int, int]:
        return _even_share(longest, count, config, max_length)

    for batch in in_batches(lengths, largest, shards=shards):
        rows, _ = largest(batch.length)
        yield batch._replace(rows=rows * shards)


def even_shapes(
    count: int,
    lengths: Iterable[int],
    config: DecodingConfig,
    max_length: int,
    *,
    shards: int = 1,
) -> frozenset[tuple[int, int]]:
    """The shapes, (rows, source length), of `plan_even_batches` over so many sources of any of
    these lengths."""
    share = -(-count // shards)
    shapes = {_even_share(length, share, config, max_length) for length in lengths}
    return frozenset((rows * shards, src_length) for rows, src_length in shapes)


def _even_share(
    longest: int, count: int, config: DecodingConfig, max_length: int
) -> tuple[int, int]:
    """A shard's rows and source length, if its longest source has this length and `count` of all
    sources are its own."""
    src_length = min(one_of_few(longest, ACCELERATOR_SHORTEST), max(max_length, longest))
    rows, most = ACCELERATOR_FEW, _rows_within(config, src_length)
    while rows < min(count, most):
        rows *= ACCELERATOR_STEP
    return min(rows, most), src_length


def in_batches(
    lengths: Sequence[int], largest: Callable[[int], tuple[int, int]], *, shards: int
) -> Iterator[PlannedBatch]:
    """Batches, longest first. `largest(longest)` gives a full batch's rows in each of `shards`
    shares, and its length."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    while order:
        rows, length = largest(lengths[order[0]])
        numbers, order = tuple(order[: rows * shards]), order[rows * shards :]
        filled = power_of_two_at_least(-(-len(numbers) // shards))
        yield PlannedBatch(numbers, min(rows, filled) * shards, length)


def shapes_among(
    lengths: Sequence[int],
    config: DecodingConfig,
    max_length: int,
    *,
    shards: int = 1,
    longest: int = 0,
) -> frozenset[tuple[int, int]]:
    """The shapes, (rows, source length), of batches over sources of these lengths, or over as many
    with some of up to `longest` tokens."""
    planned = plan_batches(lengths, config, max_length, shards=shards)
    shapes = {(batch.rows, batch.length) for batch in planned}
    longer = longest > max(lengths, default=longest)
    if longer and _largest(longest, config, max_length)[0] * shards < len(lengths):
        # The batch after one of longer sources may begin with any number of the others.
        for rows, length in list(shapes):
            shapes |= {
                (rows >> halving, length) for halving in range((rows // shards).bit_length())
            }
    return frozenset(shapes)


def _largest(length: int, config: DecodingConfig, max_length: int) -> tuple[int, int]:
    """A full share's rows and source length, if its longest source has this length."""
    needed = max(length, SHORTEST)
    src_length = min(power_of_two_at_least(needed), max(max_length, needed))
    return _rows_within(config, src_length), src_length


def _rows_within(config: DecodingConfig, src_length: int) -> int:
    """The power of two that fills `batch_tokens`, or a single row."""
    return power_of_two_at_most(max(config.batch_tokens // (src_length * config.beam_size), 1))


def more_room(room: int, length: int) -> int:
    """The next size of a cache (0: the first) for outputs of at most `length` tokens."""
    return min(max(2 * room, SHORTEST_ROOM), length)


def rooms_of_small(src_length: int, length: int) -> tuple[int, ...]:
    """A small model's cache sizes: two where sources are short, as most are."""
    return tuple(sorted({min(SHORTEST_ROOM, length), length}))[-2 if src_length <= 32 else -1 :]


def first_room(src_length: int, length: int) -> int:
    """The first size of an accelerator's cache, for outputs of at most `length` tokens. Short
    sources, as most are, begin with room for the longest of them, long ones with all of it."""
    return min(src_length, length) if src_length <= ACCELERATOR_SHORTEST else length


def blocks_of(rows: int, src_length: int) -> int:
    """Into how many equal blocks of some BLOCK tokens that many rows can be split."""
    blocks = 1
    while rows % (2 * blocks) == 0 and rows * src_length > blocks * BLOCK:
        blocks *= 2
    return blocks


def is_small(params: Any, mesh: Mesh) -> bool:
    """Whether compiling fewer programs saves more time than searching then costs."""
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    return size <= SMALL and mesh.size == 1 and mesh.devices.flat[0].platform == "cpu"


def shards_of(mesh: Mesh) -> int:
    """How many shards, one per device, a batch's rows are split into."""
    return int(mesh.shape["data"] * mesh.shape["fsdp"])
