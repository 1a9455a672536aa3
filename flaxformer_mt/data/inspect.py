"""What the model sees: training batches as text, for a person to look at before a long run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from jaxtyping import Int32

from flaxformer_mt.data.batch import Batch, assemble
from flaxformer_mt.data.order import Position
from flaxformer_mt.data.planner import Planner, planned_batches
from flaxformer_mt.data.vocabulary import Vocabularies, Vocabulary
from flaxformer_mt.text_table import aligned

BORDER = " ‖ "
"""Stands between two pairs of one row."""


def shapes_table(planner: Planner) -> str:
    """The shapes of all batches, and what the first window makes of them, as lines."""
    window = planner.window(0, 0)
    plan = window.plan
    times = np.bincount(plan.shape_of, minlength=len(planner.shapes))
    tokens = sum(int(window.pairs.sides[s].lengths(plan.pairs).sum()) for s in ("src", "tgt"))
    rows = [
        [str(shape.rows), str(shape.src_length), str(shape.tgt_length), f"{count:,}"]
        for shape, count in zip(planner.shapes, times, strict=True)
    ]
    lines = [aligned(["rows", "source", "target", "batches"], rows, left=())]
    padding = 1 - tokens / plan.positions
    lines.append(
        f"{len(plan):,} batches in the first of {planner.order.windows:,} windows of an epoch; "
        f"{padding:.1%} of their positions are padding"
    )
    return "\n".join(lines)


def batches_as_text(
    planner: Planner, vocabularies: Vocabularies, *, batches: int = 10, rows: int = 2
) -> Iterator[str]:
    """The first rows of the first batches of training, one text a batch."""
    planned = planned_batches(planner, Position())
    for number, item in enumerate(itertools.islice(planned, batches), 1):
        batch = assemble(item.pairs, item.rows.pairs, item.shape, item.rows.counts)
        yield _batch_as_text(number, batch, vocabularies, rows)


def _batch_as_text(number: int, batch: Batch, vocabularies: Vocabularies, rows: int) -> str:
    shape = batch.shape
    fill = [
        tokens / size
        for tokens, size in (
            (batch.src_tokens, batch.src.size),
            (batch.tgt_tokens, batch.tgt_out.size),
        )
    ]
    lines = [
        f"batch {number}: {shape.rows} rows of {shape.src_length} source and {shape.tgt_length} "
        f"target positions; {batch.sentences} pairs; filled {fill[0]:.1%} and {fill[1]:.1%}"
    ]
    for row in range(min(rows, shape.rows)):
        sides = (
            ("source", vocabularies.src, batch.src[row], batch.src_segment_ids[row]),
            ("target", vocabularies.tgt, batch.tgt_out[row], batch.tgt_segment_ids[row]),
        )
        for name, vocabulary, ids, segments in sides:
            used = int((segments > 0).sum())
            text = _row_as_text(vocabulary, ids, segments)
            lines.append(f"  row {row} {name}, {used} of {len(ids)}: {text}")
    return "\n".join(lines)


def _row_as_text(
    vocabulary: Vocabulary,
    ids: Int32[np.ndarray, " length"],
    segments: Int32[np.ndarray, " length"],
) -> str:
    pairs = range(1, int(segments.max(initial=0)) + 1)
    return BORDER.join(vocabulary.decode([ids[segments == pair].tolist() for pair in pairs]))
