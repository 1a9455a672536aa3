"""Plans: every pair once, within the budget; in few nested shapes, or in nearly full rows."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.bucket import plan_buckets, plan_pass, shapes_for
from flaxformer_mt.data.order import StoredCorpus
from flaxformer_mt.data.pack import packed_shape, plan_packed
from flaxformer_mt.data.plan import Plan, PlanError, Shape, plan_bits
from flaxformer_mt.data.planner import planned_pass
from tests.data.pairs import of_lengths

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=300)
BATCH = st.builds(
    BatchConfig,
    tokens=st.integers(60 * 8, 2000),
    max_shapes=st.integers(1, 12),
    multiple=st.sampled_from([1, 2, 8]),
)


def corpus(pairs: int) -> np.ndarray:
    """Lengths like those of real text: gamma-distributed, the target near the source."""
    random = np.random.default_rng(0)
    src = np.clip(random.gamma(4.0, 6.0, pairs), 1, 200).astype(np.int32)
    tgt = np.clip(src * random.normal(1.1, 0.2, pairs), 1, 200).astype(np.int32)
    return np.stack([src, tgt])


def padding(plan: Plan, src: np.ndarray, tgt: np.ndarray) -> float:
    return 1 - (src.sum() + tgt.sum()) / plan.positions


def check(plan: Plan, src: np.ndarray, tgt: np.ndarray) -> None:
    """What holds for every plan."""
    seen, partial, positions = [], 0, 0
    for index in range(len(plan)):
        shape, (pairs, counts) = plan[index]
        assert counts.tolist() == [1] * len(pairs) and 0 < len(pairs) <= shape.rows
        assert src[pairs].max() <= shape.src_length and tgt[pairs].max() <= shape.tgt_length
        partial += len(pairs) < shape.rows
        positions += shape.positions
        seen.extend(pairs.tolist())
    assert sorted(seen) == list(range(len(src)))
    assert partial <= 1 and plan.positions == positions


@settings(deadline=None)
@given(lengths=LENGTHS, batch=BATCH)
def test_shapes_are_few_nested_and_as_large_as_the_budget_allows(lengths, batch):
    src, tgt = np.array(lengths, np.int32).T
    shapes = shapes_for(src, tgt, batch)
    assert 1 <= len(shapes) <= batch.max_shapes
    assert (shapes[-1].src_length, shapes[-1].tgt_length) == (src.max(), tgt.max())
    for shape in shapes:
        longer = max(shape.src_length, shape.tgt_length)
        assert shape.rows % batch.multiple == 0
        assert 0 < shape.rows * longer <= batch.tokens < (shape.rows + batch.multiple) * longer
    for small, large in itertools.pairwise(shapes):
        assert small.src_length <= large.src_length and small.tgt_length <= large.tgt_length
        assert (small.src_length, small.tgt_length) != (large.src_length, large.tgt_length)


@settings(deadline=None)
@given(lengths=LENGTHS, batch=BATCH, epoch=st.integers(0, 1000))
def test_every_pair_exactly_once_an_epoch_and_the_same_every_time(lengths, batch, epoch):
    src, tgt = np.array(lengths, np.int32).T
    shapes = shapes_for(src, tgt, batch)
    plan, again = (plan_buckets(src, tgt, shapes, plan_bits(3, epoch, 0)) for _ in range(2))
    check(plan, src, tgt)
    check(plan_pass(src, tgt, shapes), src, tgt)
    for name in ("shape_of", "starts", "pairs"):
        np.testing.assert_array_equal(getattr(plan, name), getattr(again, name))
    next_epoch = plan_buckets(src, tgt, shapes, plan_bits(3, epoch + 1, 0))
    assert sorted(plan.shape_of) == sorted(next_epoch.shape_of)


def test_padding_is_bounded():
    src, tgt = corpus(50_000)
    for shapes, bound in ((1, 0.9), (8, 0.24), (16, 0.17), (20, 0.15)):
        batch = BatchConfig(tokens=8000, max_shapes=shapes)
        plan = plan_buckets(src, tgt, shapes_for(src, tgt, batch), plan_bits(0, 0, 0))
        assert padding(plan, src, tgt) < bound
    # Fewer where a corpus is too small for more.
    assert len(shapes_for(*corpus(40), BatchConfig(tokens=25_000, max_shapes=20))) <= 2
    src, tgt = corpus(500)
    plan = plan_pass(src, tgt, shapes_for(src, tgt, BatchConfig(tokens=2000, max_shapes=4)))
    assert (np.diff(plan.shape_of) >= 0).all()
    for index in range(len(plan) - 1):
        assert (np.diff(tgt[plan[index][1].pairs]) >= 0).all() or plan.shape_of[index] > 0

    # No empty batch where the last is full.
    check(plan_pass(src[:24], tgt[:24], (Shape(8, 200, 200),)), src[:24], tgt[:24])


def test_the_chain_is_the_best_there_is():
    """Against every chain of three shapes on a small grid of lengths, left-overs aside."""
    src, tgt = np.random.default_rng(5).integers(1, 6, (2, 400))
    shapes = shapes_for(src, tgt, BatchConfig(tokens=5, max_shapes=3, multiple=1))
    grid = list(itertools.product(range(1, 6), range(1, 6)))

    def positions(chain):
        pairs = zip(src, tgt, strict=True)
        return sum(next(a + b for a, b in chain if s <= a and t <= b) for s, t in pairs)

    best = min(
        positions([first, second, (5, 5)])
        for first, second in itertools.product(grid, grid)
        if first[0] <= second[0] and first[1] <= second[1]
    )
    chosen = [(shape.src_length, shape.tgt_length) for shape in shapes]
    # A batch of rows 1 to 5 leaves at most a few pairs over, which the choice may weigh.
    assert positions(chosen) <= best * 1.02


def test_what_cannot_be_batched_is_an_error():
    lengths = np.array([100], np.int32)
    message = (
        r"^8 rows of 100 positions exceed data\.batch\.tokens = 799: "
        r"raise it, or lower data\.filter\.max_length or"
    )
    with pytest.raises(PlanError, match=message):
        shapes_for(lengths, lengths, BatchConfig(tokens=799, multiple=8))
    assert shapes_for(lengths, lengths, BatchConfig(tokens=800, multiple=8))[0].rows == 8
    with pytest.raises(PlanError, match="no pairs"):
        shapes_for(lengths[:0], lengths[:0], BatchConfig())
    lengths = np.array([3, 9, 4], np.int32)
    with pytest.raises(PlanError, match="pair 1 with 9 source and 9 target tokens fits no shape"):
        plan_buckets(lengths, lengths, (Shape(8, 5, 5),), plan_bits(0, 0, 0))


def test_what_cannot_be_packed_is_an_error():
    lengths = np.array([3, 50], np.int32)
    with pytest.raises(PlanError, match="there are no pairs"):
        packed_shape(lengths[:0], lengths[:0], BatchConfig())
    with pytest.raises(PlanError, match=r"the longest pair's 50 source .*src_length or"):
        packed_shape(lengths, lengths, BatchConfig(src_length=40, tgt_length=60))
    with pytest.raises(PlanError, match=r"8 rows .* exceed data\.batch\.tokens = 100"):
        packed_shape(lengths, lengths, BatchConfig(tokens=100))
    with pytest.raises(PlanError, match="pair 1 has over 40 target tokens"):
        plan_packed(lengths, lengths, Shape(8, 60, 40), plan_bits(0, 0, 0))


def test_planning_is_quick():
    """No Python loop over pairs: one takes at least a microsecond a pair and step."""
    src, tgt = corpus(300_000)
    shapes = shapes_for(src[:1000], tgt[:1000], BatchConfig())
    shapes = (*shapes[:-1], Shape(8, 200, 200))
    begin = time.process_time()
    plan_buckets(src, tgt, shapes, plan_bits(0, 0, 0))
    assert time.process_time() - begin < 0.6


SHORTER = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=300)


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
@given(lengths=SHORTER, rows=st.integers(1, 9))
def test_every_pair_exactly_once_and_no_row_too_long(lengths, rows):
    src, tgt = np.array(lengths, np.int32).T
    plan, again = (plan_packed(src, tgt, Shape(rows, 40, 44), plan_bits(3, 0, 0)) for _ in range(2))
    fill(plan, src, tgt)
    np.testing.assert_array_equal(plan.pairs, again.pairs)
    np.testing.assert_array_equal(plan.row_starts, again.row_starts)


def test_both_sides_of_the_rows_are_nearly_full():
    src, tgt = corpus(40_000)
    budget = 4_000
    shape = packed_shape(src, tgt, BatchConfig(tokens=budget))
    assert shape.rows % 8 == 0 and shape.rows * max(shape.src_length, shape.tgt_length) <= budget
    plan = plan_packed(src, tgt, shape, plan_bits(1, 0, 0))
    assert min(fill(plan, src, tgt)) >= 0.96
    assert padding(plan, src, tgt) <= 0.04


def test_rows_hold_the_longest_pair_in_the_proportion_of_the_sides():
    src, tgt = corpus(20_000)
    shape = packed_shape(src, tgt, BatchConfig())
    assert shape.src_length >= src.max() and shape.tgt_length >= tgt.max()
    assert shape.tgt_length / shape.src_length == pytest.approx(tgt.sum() / src.sum(), rel=0.015)
    kinds, counts = np.unique(np.stack([src, tgt]), axis=1, return_counts=True)
    assert packed_shape(kinds[0], kinds[1], BatchConfig(), counts) == shape


def test_lengths_that_the_config_gives_are_the_rows():
    src, tgt = corpus(20_000)
    config = BatchConfig(src_length=224, tgt_length=256)
    assert packed_shape(src, tgt, config) == Shape(96, 224, 256)


def test_a_side_is_not_a_little_longer_than_a_multiple_of_128():
    """A TPU's attention pads to 128: neither side has 264, for a proportion of 30 to 31."""
    src, tgt, counts = np.array([30, 256]), np.array([31, 256]), np.array([10**6, 1])
    assert packed_shape(src, tgt, BatchConfig(), counts) == Shape(96, 256, 256)


@pytest.mark.parametrize(("tokens", "length"), [(25_000, 208), (1600, 200)])
def test_one_long_sentence_makes_both_sides_long_as_far_as_there_is_room(tokens, length):
    src, tgt, counts = np.array([20, 200]), np.array([20, 60]), np.array([10**6, 1])
    shape = packed_shape(src, tgt, BatchConfig(tokens=tokens), counts)
    assert shape == Shape(tokens // length // 8 * 8, length, length)


def test_pairs_that_do_not_go_together_take_more_rows_and_are_planned_at_once():
    """Two fit in no row; in a mixture a fifth does not combine with the rest."""
    src = tgt = np.full(20_000, 129, np.int32)
    begin = time.process_time()
    plan = plan_packed(src, tgt, Shape(96, 256, 256), plan_bits(0, 0, 0))
    assert len(plan) == -(-20_000 // 96)
    random = np.random.default_rng(0)
    src = np.where(np.arange(20_000) % 10, random.integers(130, 250, 20_000), 12).astype(np.int32)
    assert min(fill(plan_packed(src, src, Shape(96, 256, 256), plan_bits(0, 0, 0)), src, src)) > 0.7
    # It took minutes when rows were added a few at a time.
    assert time.process_time() - begin < 30
    # And no pairs take none.
    assert len(plan_packed(src[:0], tgt[:0], Shape(8, 9, 9), plan_bits(0, 0, 0))) == 0


@pytest.mark.parametrize(
    ("sets", "setting"),
    [
        ((), "data.valid"),
        ((StoredCorpus("fr", 0, 1), StoredCorpus("de", 1, 1)), "data.valid_sets"),
    ],
)
def test_validation_that_fits_no_batch_names_its_setting(sets, setting):
    pairs = of_lengths([5, 70], [5, 70], *sets)
    with pytest.raises(PlanError, match=f"^{setting}: 8 rows of "):
        planned_pass(pairs, BatchConfig(tokens=64, multiple=8))
