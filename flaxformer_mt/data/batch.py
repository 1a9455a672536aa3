"""A training batch, and how one is put together from stored pairs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Int32, Integer

from flaxformer_mt.data.plan import PlanError, Shape
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.data.vocabulary import BOS, PAD


@dataclasses.dataclass(frozen=True)
class Batch:
    """Token ids, segment ids (0: padding) and positions within a segment, int32.

    `tgt_out` is what the decoder is to say, ending in EOS; `tgt_in` is the same moved right by one
    behind BOS (section 3.1), anew in each segment. The arrays are NumPy's until a batch is placed
    on devices.
    """

    src: Int32[np.ndarray, "rows src_length"]
    src_segment_ids: Int32[np.ndarray, "rows src_length"]
    src_positions: Int32[np.ndarray, "rows src_length"]
    tgt_in: Int32[np.ndarray, "rows tgt_length"]
    tgt_out: Int32[np.ndarray, "rows tgt_length"]
    tgt_segment_ids: Int32[np.ndarray, "rows tgt_length"]
    tgt_positions: Int32[np.ndarray, "rows tgt_length"]

    @property
    def shape(self) -> Shape:
        rows, src_length = self.src.shape
        return Shape(rows, src_length, self.tgt_out.shape[1])

    @property
    def src_tokens(self) -> Any:
        """Number of source tokens, end marks included; a scalar of the arrays' own library."""
        return (self.src_segment_ids > 0).sum()

    @property
    def tgt_tokens(self) -> Any:
        """Number of target tokens, end marks included: the loss is divided by it."""
        return (self.tgt_segment_ids > 0).sum()

    @property
    def sentences(self) -> Any:
        """Number of pairs: segments are numbered from 1 in each row."""
        return self.tgt_segment_ids.max(axis=1).sum()


def assemble(pairs: TokenPairs, indices: Integer[np.ndarray, " pairs"], shape: Shape) -> Batch:
    """The pairs at `indices`, one a row; rows beyond them are padding.

    Raises:
      PlanError: more pairs than rows, or a pair longer than the shape.
    """
    if len(indices) > shape.rows:
        raise PlanError(f"{len(indices)} pairs do not fit the rows of {shape}")
    src, src_segment_ids, src_positions = _one_side(
        pairs, "src", pairs.src_lengths[indices], indices, shape.rows, shape.src_length
    )
    tgt_out, tgt_segment_ids, tgt_positions = _one_side(
        pairs, "tgt", pairs.tgt_lengths[indices], indices, shape.rows, shape.tgt_length
    )
    tgt_in = np.full_like(tgt_out, BOS)
    tgt_in[:, 1:] = tgt_out[:, :-1]
    return Batch(
        src=src,
        src_segment_ids=src_segment_ids,
        src_positions=src_positions,
        tgt_in=np.where(tgt_segment_ids > 0, tgt_in, PAD),
        tgt_out=tgt_out,
        tgt_segment_ids=tgt_segment_ids,
        tgt_positions=tgt_positions,
    )


def _one_side(
    pairs: TokenPairs,
    side: str,
    lengths: Int32[np.ndarray, " pairs"],
    indices: Integer[np.ndarray, " pairs"],
    rows: int,
    length: int,
) -> tuple[
    Int32[np.ndarray, "rows length"],
    Int32[np.ndarray, "rows length"],
    Int32[np.ndarray, "rows length"],
]:
    """Token ids, segment ids and positions of one side."""
    if len(lengths) and lengths.max() > length:
        pair = int(indices[lengths.argmax()])
        raise PlanError(f"pair {pair} has {lengths.max()} {side} tokens; the shape holds {length}")
    tokens = np.full((rows, length), PAD, np.int32)
    tokens[: len(indices)] = pairs.sides[side].gather(indices, length)
    filled = np.zeros(rows, np.int32)
    filled[: len(indices)] = lengths
    column = np.arange(length, dtype=np.int32)
    inside = column < filled[:, None]
    return tokens, inside.astype(np.int32), np.where(inside, column, np.int32(0))
