"""A training batch, and assembling one from stored pairs."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32, Integer, Shaped

from flaxformer_mt.data.plan import PlanError, Shape
from flaxformer_mt.data.store import TokenPairs, runs
from flaxformer_mt.data.vocabulary import BOS, PAD


@dataclasses.dataclass(frozen=True)
class Batch:
    """Token ids, segment ids (0: padding) and positions within a segment, int32.

    `tgt_out` is what the decoder should predict, ending in EOS; `tgt_in` is the same shifted right
    behind BOS (section 3.1) in each segment. `tgt_weights` multiply the loss of each target token
    by its pair's weight (float32, None: all 1). NumPy arrays until placed on devices.
    """

    src: Int32[np.ndarray, "rows src_length"]
    src_segment_ids: Int32[np.ndarray, "rows src_length"]
    src_positions: Int32[np.ndarray, "rows src_length"]
    tgt_in: Int32[np.ndarray, "rows tgt_length"]
    tgt_out: Int32[np.ndarray, "rows tgt_length"]
    tgt_segment_ids: Int32[np.ndarray, "rows tgt_length"]
    tgt_positions: Int32[np.ndarray, "rows tgt_length"]
    tgt_weights: Float32[np.ndarray, "rows tgt_length"] | None = None

    @property
    def arrays(self) -> dict[str, Any]:
        """The arrays that it has, by name."""
        return {name: array for name, array in vars(self).items() if array is not None}

    @property
    def shape(self) -> Shape:
        rows, src_length = self.src.shape
        return Shape(rows, src_length, self.tgt_out.shape[1])

    @property
    def src_tokens(self) -> Any:
        """Number of source tokens with end marks, a scalar of the arrays' own library."""
        return (self.src_segment_ids > 0).sum()

    @property
    def tgt_tokens(self) -> Any:
        """Number of target tokens with end marks, which divides the loss."""
        return (self.tgt_segment_ids > 0).sum()

    @property
    def tgt_weight(self) -> Any:
        """The sum of the target tokens' weights: their number, if they have none."""
        return self.tgt_tokens if self.tgt_weights is None else self.tgt_weights.sum()

    @property
    def sentences(self) -> Any:
        """Number of pairs: segments are numbered from 1 in each row."""
        return self.tgt_segment_ids.max(axis=1).sum()


@dataclasses.dataclass(frozen=True)
class Share:
    """The rows of a global batch that a process feeds: these of `count` equal parts."""

    numbers: tuple[int, ...] = (0,)
    count: int = 1

    def of_whole(self, amount: int) -> int:
        """A global batch's amount, from this share's."""
        return amount * self.count // len(self.numbers)


WHOLE = Share()


def assemble(
    pairs: TokenPairs,
    indices: Integer[np.ndarray, " pairs"],
    shape: Shape,
    counts: Integer[np.ndarray, " rows"] | None = None,
    share: Share = WHOLE,
    sources: Integer[np.ndarray, " pairs"] | None = None,
) -> Batch:
    """The pairs at `indices`, `counts[r]` of them in row r (default 1), then padding rows.

    Only `share`'s rows. Targets get the sources at `sources`, if given. Raises PlanError.
    """
    counts = np.ones(len(indices), np.int64) if counts is None else counts
    sources = indices if sources is None else sources
    if len(counts) > shape.rows:
        raise PlanError(f"{len(counts)} rows do not fit {shape}")
    size, remainder = divmod(shape.rows, share.count)
    if remainder:
        raise PlanError(f"{shape.rows} rows: data.batch.multiple must be n x {share.count}")

    rows = size * len(share.numbers)
    if share.count > 1:
        counts = np.pad(counts, (0, shape.rows - len(counts)))
        row_in_share = np.isin(np.arange(shape.rows) // size, share.numbers)
        pair_in_share = np.repeat(row_in_share, counts)
        indices, sources = indices[pair_in_share], sources[pair_in_share]
        counts = counts[row_in_share]
    *src, _, _ = _one_side(pairs, "src", sources, counts, rows, shape.src_length)
    *tgt, tgt_in, weights = _one_side(pairs, "tgt", indices, counts, rows, shape.tgt_length)
    return Batch(*(*src, tgt_in, *tgt, weights))


def _one_side(
    pairs: TokenPairs,
    side: str,
    indices: Integer[np.ndarray, " pairs"],
    counts: Integer[np.ndarray, " filled_rows"],
    rows: int,
    length: int,
) -> tuple[Any, ...]:
    """Token ids, segment ids, positions, the ids shifted right behind BOS, and weights or None."""
    lengths = pairs.sides[side].lengths(indices)
    row = np.repeat(np.arange(len(counts)), counts)  # of each pair
    number = np.arange(len(indices)) - np.repeat(np.cumsum(counts) - counts, counts)  # in its row
    ends = np.cumsum(lengths, dtype=np.int64)
    row_begins = np.append(0, ends)[np.append(0, np.cumsum(counts))]
    if len(counts) and np.diff(row_begins).max() > length:
        fullest = int(np.diff(row_begins).argmax())
        pair = int(indices[row == fullest][0])
        raise PlanError(f"the row of pair {pair} has over {length} {side} tokens")

    tokens = pairs.sides[side].gather(indices)
    moved = np.empty_like(tokens)
    moved[1:] = tokens[:-1]
    moved[ends - lengths] = BOS
    segment = np.repeat((number + 1).astype(np.int32), lengths)
    position = runs(np.zeros(len(lengths), np.int64), lengths).astype(np.int32)

    # Tokens of a row are side by side, so they move by as many places as the row does.
    cells = np.arange(len(tokens)) + np.repeat(row * length - row_begins[row], lengths)

    def placed(by_token: np.ndarray, empty: int) -> Shaped[np.ndarray, "rows length"]:
        array = np.full(rows * length, empty, by_token.dtype)
        array[cells] = by_token
        return array.reshape(rows, length)

    ids = placed(tokens, PAD), placed(segment, 0), placed(position, 0), placed(moved, PAD)
    weights = pairs.sides[side].weights(indices)
    return *ids, None if weights is None else placed(np.repeat(weights, lengths), 0)
