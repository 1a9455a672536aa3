"""Packed batches: every pair once, no row too long, rows nearly full."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.pack import packed_shape, plan_packed
from flaxformer_mt.data.plan import Plan, PlanError, Shape, stream
from tests.data.test_bucket import corpus, padding

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=300)


def fill(plan: Plan, src: np.ndarray, tgt: np.ndarray) -> tuple[float, float]:
    """The share of positions that hold a token, on each side; checks the rest on the way."""
    shape = plan.shapes[0]
    seen: list[int] = []
    for index in range(len(plan)):
        given_shape, rows = plan[index]
        assert given_shape == shape and len(rows.counts) == shape.rows
        row = np.repeat(np.arange(shape.rows), rows.counts)
        assert np.bincount(row, src[rows.pairs], shape.rows).max() <= shape.src_length
        assert np.bincount(row, tgt[rows.pairs], shape.rows).max() <= shape.tgt_length
        seen += rows.pairs.tolist()
    assert sorted(seen) == list(range(len(src)))
    positions = len(plan) * shape.rows
    return src.sum() / (positions * shape.src_length), tgt.sum() / (positions * shape.tgt_length)


@settings(deadline=None)
@given(lengths=LENGTHS, rows=st.integers(1, 9))
def test_every_pair_exactly_once_and_no_row_too_long(
    lengths: list[tuple[int, int]], rows: int
) -> None:
    src, tgt = np.array(lengths, np.int32).T
    plan, again = (plan_packed(src, tgt, Shape(rows, 40, 44), stream(3, 0, 0)) for _ in range(2))
    fill(plan, src, tgt)
    np.testing.assert_array_equal(plan.pairs, again.pairs)
    np.testing.assert_array_equal(plan.row_starts, again.row_starts)


def test_both_sides_of_the_rows_are_nearly_full() -> None:
    src, tgt = corpus(40_000)
    budget = 4_000
    shape = packed_shape(src, tgt, BatchConfig(tokens=budget))
    assert shape.rows % 8 == 0 and shape.rows * max(shape.src_length, shape.tgt_length) <= budget
    plan = plan_packed(src, tgt, shape, stream(1, 0, 0))
    assert min(fill(plan, src, tgt)) >= 0.96
    assert padding(plan, src, tgt) <= 0.04


def test_pairs_that_do_not_go_together_take_more_rows_and_are_planned_at_once() -> None:
    """Two fit in no row; in a mixture a fifth does not combine with the rest."""
    src = tgt = np.full(20_000, 129, np.int32)
    begin = time.process_time()
    plan = plan_packed(src, tgt, Shape(96, 256, 256), stream(0, 0, 0))
    assert len(plan) == -(-20_000 // 96)
    random = np.random.default_rng(0)
    src = np.where(np.arange(20_000) % 10, random.integers(130, 250, 20_000), 12).astype(np.int32)
    plan = plan_packed(src, src, Shape(96, 256, 256), stream(0, 0, 0))
    assert min(fill(plan, src, src)) > 0.7
    # It took minutes when rows were added a few at a time.
    assert time.process_time() - begin < 30
    # And no pairs take none.
    assert len(plan_packed(src[:0], tgt[:0], Shape(8, 9, 9), stream(0, 0, 0))) == 0


def test_lengths_hold_the_longest_and_keep_the_proportion_of_the_sides() -> None:
    src, tgt = corpus(20_000)
    shape = packed_shape(src, tgt, BatchConfig())
    assert shape.src_length >= src.max() and shape.tgt_length >= tgt.max()
    assert shape.tgt_length / shape.src_length == pytest.approx(tgt.sum() / src.sum(), rel=0.015)
    kinds, counts = np.unique(np.stack([src, tgt]), axis=1, return_counts=True)
    assert packed_shape(kinds[0], kinds[1], BatchConfig(), counts) == shape
    asked = BatchConfig(src_length=224, tgt_length=256)
    assert packed_shape(src, tgt, asked) == Shape(96, 224, 256)


def test_what_cannot_be_packed_is_an_error() -> None:
    lengths = np.array([3, 50], np.int32)
    with pytest.raises(PlanError, match="there are no pairs"):
        packed_shape(lengths[:0], lengths[:0], BatchConfig())
    with pytest.raises(PlanError, match=r"longest source has 50 .*src_length is 40 and"):
        packed_shape(lengths, lengths, BatchConfig(src_length=40, tgt_length=60))
    with pytest.raises(PlanError, match=r"8 rows .* exceed data\.batch\.tokens = 100"):
        packed_shape(lengths, lengths, BatchConfig(tokens=100))
    with pytest.raises(PlanError, match="pair 1 has 50 target tokens"):
        plan_packed(lengths, lengths, Shape(8, 60, 40), stream(0, 0, 0))
