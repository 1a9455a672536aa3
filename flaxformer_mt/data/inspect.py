"""What the model sees: training batches as text, for a person to look at before a long run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from flaxformer_mt.data.batch import Batch
from flaxformer_mt.data.order import Position
from flaxformer_mt.data.planner import Planner, planned_batches
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.text_table import aligned

BORDER = " ‖ "
"""Stands between two pairs of one row."""


def shapes_table(planner: Planner) -> str:
    """The shapes of all batches, and what the first window makes of them, as lines."""
    window = planner.window(0, 0)
    plan = window.plan
    times = np.bincount(plan.shape_of, minlength=len(planner.shapes))
    rows = [
        [str(shape.rows), str(shape.src_length), str(shape.tgt_length), f"{count:,}"]
        for shape, count in zip(planner.shapes, times, strict=True)
    ]
    table = aligned(["rows", "source", "target", "batches"], rows, left=())
    return (
        f"{table}\n{len(plan):,} batches in the first of {planner.order.windows:,} windows of an "
        f"epoch; {window.padding:.1%} of their positions are padding"
    )


def batches_as_text(
    planner: Planner, vocabularies: Vocabularies, *, batches: int = 10, rows: int = 2
) -> Iterator[str]:
    """The first rows of the first batches of training, one text a batch."""
    planned = planned_batches(planner, Position())
    for number, item in enumerate(itertools.islice(planned, batches), 1):
        yield _batch_as_text(number, item.batch(), vocabularies, rows)


def _batch_as_text(number: int, batch: Batch, vocabularies: Vocabularies, rows: int) -> str:
    shape = batch.shape
    fill = batch.src_tokens / batch.src.size, batch.tgt_tokens / batch.tgt_out.size
    lines = [
        f"batch {number}: {shape.rows} rows of {shape.src_length} source and {shape.tgt_length} "
        f"target positions; {batch.sentences} pairs; filled {fill[0]:.1%} and {fill[1]:.1%}"
    ]
    sides = (
        ("source", vocabularies.src, batch.src, batch.src_segment_ids),
        ("target", vocabularies.tgt, batch.tgt_out, batch.tgt_segment_ids),
    )
    for row in range(min(rows, shape.rows)):
        for name, vocabulary, ids, segments in sides:
            pairs = range(1, int(segments[row].max()) + 1)
            texts = vocabulary.decode([ids[row][segments[row] == pair].tolist() for pair in pairs])
            used = int((segments[row] > 0).sum())
            lines.append(f"  row {row} {name}, {used} of {len(ids[row])}: {BORDER.join(texts)}")
    return "\n".join(lines)
