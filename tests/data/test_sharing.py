"""Several hosts: each reads its rows of the same global batches, and any number can go on."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.batch import Batch, Share, assemble
from flaxformer_mt.data.plan import PlanError, Shape
from flaxformer_mt.data.planner import Planner, planned_batches
from flaxformer_mt.data.position import Position
from tests.data.test_pipeline import PAIRS

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
