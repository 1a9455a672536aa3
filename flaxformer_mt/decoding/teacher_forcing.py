"""Pairs of sentences through encoder and decoder at once, in batches of few shapes.

The decoder is given the whole translation ("teacher forcing"), so that one pass says of every
token what search would have to ask one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from flaxformer_mt.data.vocabulary import BOS, EOS, PAD
from flaxformer_mt.decoding.segments import Part
from flaxformer_mt.model import Transformer
from flaxformer_mt.parallel import on_mesh, place_batch

SHORTEST = 16  # positions of the smallest batch shape


class Pairs(NamedTuple):
    """Sources and translations: the decoder reads `tgt_in` (begin mark, translation) and says
    `tgt_out` (translation, end mark)."""

    src: Int[Any, "rows length"]
    tgt_in: Int[Any, "rows length"]
    tgt_out: Int[Any, "rows length"]
    src_lengths: Int[Any, " rows"]  # tokens with the end mark; 0: padding
    tgt_lengths: Int[Any, " rows"]


class PairBatch(NamedTuple):
    """Which parts share a batch, and its arrays on the host; rows beyond them are padding."""

    parts: tuple[int, ...]
    pairs: Pairs


def batches(
    parts: Sequence[Part], *, batch_tokens: int, max_length: int, split: int
) -> Iterator[PairBatch]:
    """The parts in batches, those with the longest side first.

    Both sides of a batch have one length, a power of two or one and a half of one (or
    `max_length`). Its rows are `split` equal parts, each the power of two that fills
    `batch_tokens` = rows * length, or a single row; the last batch has fewer rows.
    """
    lengths = [max(len(part.src), len(part.tgt)) + 1 for part in parts]
    order = sorted(range(len(parts)), key=lambda number: -lengths[number])
    done = 0
    while done < len(order):
        length = min(batch_length(lengths[order[done]]), max_length)
        rows = max(batch_tokens // length, 1)
        rows = 1 << (rows.bit_length() - 1)
        numbers = tuple(order[done : done + rows * split])
        filled = 1 << (-(-len(numbers) // split) - 1).bit_length()
        yield _batch(parts, numbers, min(rows, filled) * split, length)
        done += len(numbers)


def over_batches(
    parts: Sequence[Part],
    compute: Callable[[Pairs], Array],
    *,
    batch_tokens: int,
    max_length: int,
    mesh: Mesh,
) -> list[np.ndarray]:
    """What `compute` makes of each part: of its [rows, length, ...], the part's own target.

    The rows of a batch are shared by the devices of `mesh`.
    """
    split = mesh.shape["data"] * mesh.shape["fsdp"]
    found: list[Any] = [None] * len(parts)
    waiting: list[tuple[PairBatch, Array]] = []

    def fetch(batch: PairBatch, values: Array) -> None:
        host = np.asarray(values)
        for row, number in enumerate(batch.parts):
            # A view would keep the whole batch, padding and all.
            found[number] = host[row, : batch.pairs.tgt_lengths[row]].copy()

    for batch in batches(parts, batch_tokens=batch_tokens, max_length=max_length, split=split):
        with on_mesh(mesh):
            waiting.append((batch, compute(place_batch(batch.pairs, mesh))))
        # The next batch is put together while the devices have this one; no more are held.
        if len(waiting) > 1:
            fetch(*waiting.pop(0))
    for last in waiting:
        fetch(*last)
    return found


def batch_length(needed: int) -> int:
    """The smallest length of a batch shape that is at least `needed`."""
    power = max(1 << (needed - 1).bit_length(), SHORTEST)
    return power * 3 // 4 if needed <= power * 3 // 4 and power > SHORTEST else power


def _batch(parts: Sequence[Part], numbers: tuple[int, ...], rows: int, length: int) -> PairBatch:
    src, tgt_in, tgt_out = (np.full((rows, length), PAD, np.int32) for _ in range(3))
    src_lengths, tgt_lengths = (np.zeros(rows, np.int32) for _ in range(2))
    for row, number in enumerate(numbers):
        part = parts[number]
        src_lengths[row], tgt_lengths[row] = len(part.src) + 1, len(part.tgt) + 1
        src[row, : src_lengths[row]] = (*part.src, EOS)
        tgt_in[row, : tgt_lengths[row]] = (BOS, *part.tgt)
        tgt_out[row, : tgt_lengths[row]] = (*part.tgt, EOS)
    return PairBatch(numbers, Pairs(src, tgt_in, tgt_out, src_lengths, tgt_lengths))


def decoder_states(
    model: Transformer,
    params: Mapping[str, Any],
    pairs: Pairs,
    *,
    with_attention: bool = False,
) -> tuple[Float[Array, "rows length d_model"], Mapping[str, Any]]:
    """The decoder's states for every token of `tgt_in`, and what the layers sow on the way.

    The latter is empty unless `with_attention`. For use in a jitted function.
    """
    positions = jnp.broadcast_to(jnp.arange(pairs.src.shape[1])[None], pairs.src.shape)
    src_ids = (positions < pairs.src_lengths[:, None]).astype(jnp.int32)
    tgt_ids = (positions < pairs.tgt_lengths[:, None]).astype(jnp.int32)
    hidden, sown = model.apply(
        {"params": params},
        pairs.src,
        pairs.tgt_in,
        src_segment_ids=src_ids,
        tgt_segment_ids=tgt_ids,
        src_positions=positions * src_ids,
        tgt_positions=positions * tgt_ids,
        deterministic=True,
        mutable=["intermediates"] if with_attention else [],
    )
    return hidden, sown
