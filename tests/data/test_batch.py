"""A batch row is the pair it came from, shifted for the decoder; each host has its share."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.batch import Batch, Share, assemble
from flaxformer_mt.data.order import Position
from flaxformer_mt.data.plan import PlanError, Shape
from flaxformer_mt.data.planner import Planner, planned_batches
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.data.vocabulary import BOS, EOS
from tests.data.test_pipeline import PAIRS

SENTENCE = st.lists(st.integers(4, 99), min_size=1, max_size=9)


def by_hand(sentences: list[list[int]], rows: int, length: int) -> dict[str, list[list[int]]]:
    """The four views of one side, written out row by row."""
    views: dict[str, list[list[int]]] = {"in": [], "out": [], "segments": [], "positions": []}
    for sentence in sentences + [[]] * (rows - len(sentences)):
        real = len(sentence) + 1 if sentence else 0
        blank = [0] * (length - real)
        views["out"].append([*sentence, EOS][:real] + blank)
        views["in"].append([BOS, *sentence][:real] + blank)
        views["segments"].append([1] * real + blank)
        views["positions"].append(list(range(real)) + blank)
    return views


@settings(deadline=None)
@given(
    pairs=st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=6),
    extra=st.tuples(*[st.integers(0, 4)] * 3),
    data=st.data(),
)
def test_rows_equal_those_written_by_hand(
    pairs: list[tuple[list[int], list[int]]],
    extra: tuple[int, int, int],
    data: st.DataObject,
) -> None:
    order = data.draw(st.permutations(range(len(pairs))))
    src, tgt = ([list(pair[side]) for pair in pairs] for side in (0, 1))
    shape = Shape(
        len(pairs) + extra[0],
        max(map(len, src)) + 1 + extra[1],
        max(map(len, tgt)) + 1 + extra[2],
    )
    batch = assemble(TokenPairs.from_lists(src, tgt), np.array(order, np.int64), shape)
    assert batch.shape == shape
    expected_src = by_hand([src[i] for i in order], shape.rows, shape.src_length)
    expected_tgt = by_hand([tgt[i] for i in order], shape.rows, shape.tgt_length)
    assert batch.src.tolist() == expected_src["out"]
    assert batch.src_segment_ids.tolist() == expected_src["segments"]
    assert batch.src_positions.tolist() == expected_src["positions"]
    assert batch.tgt_in.tolist() == expected_tgt["in"]
    assert batch.tgt_out.tolist() == expected_tgt["out"]
    assert batch.tgt_segment_ids.tolist() == expected_tgt["segments"]
    assert batch.tgt_positions.tolist() == expected_tgt["positions"]
    assert {array.dtype for array in vars(batch).values()} == {np.dtype(np.int32)}
    assert batch.src_tokens == sum(len(s) + 1 for s in src)
    assert batch.tgt_tokens == sum(len(t) + 1 for t in tgt)
    assert batch.sentences == len(pairs)


def test_sentences_of_packed_rows_count_by_segment() -> None:
    segments = np.array([[1, 1, 2, 3, 0], [1, 1, 1, 1, 0], [0, 0, 0, 0, 0]], np.int32)
    batch = Batch(*[segments] * 7)
    assert (batch.sentences, batch.tgt_tokens) == (4, 8)


def test_what_does_not_fit_is_an_error() -> None:
    pairs = TokenPairs.from_lists([[5, 6], [7]], [[8], [9, 10, 11]])
    with pytest.raises(PlanError, match="2 rows do not fit those of"):
        assemble(pairs, np.array([0, 1]), Shape(1, 9, 9))
    with pytest.raises(PlanError, match="pair 0 has 3 src tokens; the shape holds 2"):
        assemble(pairs, np.array([1, 0]), Shape(2, 2, 9))
    with pytest.raises(PlanError, match="pair 1 has 4 tgt tokens; the shape holds 3"):
        assemble(pairs, np.array([0, 1]), Shape(2, 9, 3))


HOSTS = (1, 2, 3, 4, 8)
CONFIGS = [
    BatchConfig(form=form, tokens=2000, max_shapes=3, multiple=24, window=window)
    for form in ("bucket", "pack")
    for window in (30, 1000)
]


def batches(config: BatchConfig, share: Share, start: Position, count: int) -> list[Batch]:
    planned = planned_batches(Planner(PAIRS, config, 3), start)
    found = [
        assemble(item.pairs, item.rows.pairs, item.shape, item.rows.counts, share)
        for item in itertools.islice(planned, count)
    ]
    planned.close()
    return found


def joined(parts: list[Batch]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])}


@pytest.mark.parametrize("config", CONFIGS)
def test_the_hosts_rows_together_are_the_global_batch(config: BatchConfig) -> None:
    whole = batches(config, Share(), Position(), 9)
    for hosts in HOSTS:
        shares = [batches(config, Share((host,), hosts), Position(), 9) for host in range(hosts)]
        for number, batch in enumerate(whole):
            union = joined([share[number] for share in shares])
            assert all(np.array_equal(union[name], array) for name, array in vars(batch).items())


def test_a_hosts_rows_need_not_be_neighbours() -> None:
    indices, counts = np.arange(11), np.array([2, 1, 0, 3, 1, 1, 3], np.int64)
    shape = Shape(8, 60, 60)
    whole = assemble(PAIRS, indices, shape, counts)
    part = assemble(PAIRS, indices, shape, counts, Share((0, 3), 4))
    for name, array in vars(part).items():
        assert np.array_equal(array, vars(whole)[name][[0, 1, 6, 7]])


@pytest.mark.parametrize("config", CONFIGS)
def test_another_number_of_hosts_goes_on_with_the_same_global_batches(config: BatchConfig) -> None:
    planned = planned_batches(Planner(PAIRS, config, 3), Position())
    middle = list(itertools.islice(planned, 5))[-1].after
    planned.close()
    whole = batches(config, Share(), Position(), 12)[5:]
    for hosts in (2, 8):
        shares = [batches(config, Share((host,), hosts), middle, 7) for host in range(hosts)]
        for number, batch in enumerate(whole):
            assert np.array_equal(joined([share[number] for share in shares])["src"], batch.src)


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(0, 3), max_size=12),
    hosts=st.sampled_from([1, 2, 3, 4, 6, 12]),
)
def test_rows_without_pairs_and_missing_rows_are_padding(counts: list[int], hosts: int) -> None:
    indices = np.arange(sum(counts))
    shape = Shape(12, 60, 60)
    whole = assemble(PAIRS, indices, shape, np.array(counts, np.int64))
    parts = [
        assemble(PAIRS, indices, shape, np.array(counts, np.int64), Share((host,), hosts))
        for host in range(hosts)
    ]
    assert all(np.array_equal(joined(parts)[name], array) for name, array in vars(whole).items())
    assert whole.src_segment_ids.max(axis=1).tolist() == counts + [0] * (12 - len(counts))


def test_rows_that_the_hosts_do_not_divide_are_an_error() -> None:
    with pytest.raises(PlanError, match=r"8 rows cannot be split into 3 parts: .*multiple"):
        assemble(PAIRS, np.arange(8), Shape(8, 20, 20), share=Share((0,), 3))
