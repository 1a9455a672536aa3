"""The order of an epoch: a permutation of any size, windows that cover it, mixtures that hold.

Plans do not change silently: a stopped run goes on with the batches it would have had. So digests
of whole windows' plans are recorded here, for lengths that a formula gives.
"""

import collections
import hashlib
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.order import Order, StoredCorpus, permute
from flaxformer_mt.data.planner import Planner
from tests.data.pairs import of_lengths

KEYS = np.random.Philox(5).random_raw(8)


def whole_epoch(order: Order, epoch: int) -> list[int]:
    return np.concatenate([order.pairs(epoch, w) for w in range(order.windows)]).tolist()


@settings(deadline=None)
@given(size=st.integers(1, 2000), seed=st.integers(0, 2**32))
def test_every_number_is_hit_exactly_once(size, seed):
    keys = np.random.Philox(seed).random_raw(8)
    permuted = permute(np.arange(size, dtype=np.uint64), size, keys)
    assert sorted(permuted.tolist()) == list(range(size))


def test_a_permutation_looks_random():
    size = 100_000
    permuted = permute(np.arange(size, dtype=np.uint64), size, KEYS).astype(np.int64)
    # Neighbours are as far apart as strangers: a third of the size on average.
    assert abs(np.abs(np.diff(permuted)).mean() / (size / 3) - 1) < 0.02
    # The places of the first tenth are spread evenly over ten parts.
    counts = np.bincount(permuted[: size // 10] * 10 // size, minlength=10)
    assert ((counts - 1000) ** 2 / 1000).sum() < 30  # chi-squared, 9 degrees of freedom
    assert abs(np.corrcoef(permuted, np.arange(size))[0, 1]) < 0.02


def parts_of(*sizes_and_weights: tuple[int, float]) -> tuple[StoredCorpus, ...]:
    firsts = itertools.accumulate((size for size, _ in sizes_and_weights), initial=0)
    return tuple(
        StoredCorpus("", first, size, weight)
        for first, (size, weight) in zip(firsts, sizes_and_weights, strict=False)
    )


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=4), window=st.integers(1, 80))
def test_every_pair_once_an_epoch_in_windows_of_equal_size(sizes, window):
    order = Order(parts_of(*((size, 0.0) for size in sizes)), 3, window)
    assert sorted(whole_epoch(order, 2)) == list(range(sum(sizes)))
    lengths = [len(order.pairs(2, number)) for number in range(order.windows)]
    assert max(lengths) - min(lengths) <= 1
    assert max(lengths) <= 1.5 * window + 1


def test_epochs_and_seeds_differ():
    orders = [Order(parts_of((500, 0.0)), seed, 100) for seed in (1, 2)]
    assert len({tuple(whole_epoch(order, epoch)) for order in orders for epoch in (0, 1)}) == 4


PARTS = st.lists(st.tuples(st.integers(1, 50), st.sampled_from([0.25, 1.0, 3.0])), min_size=1)


@settings(deadline=None)
@given(mixture=PARTS, window=st.integers(1, 60), pairs=st.integers(1, 120))
def test_in_a_mixture_shares_hold_at_every_moment_and_passes_are_whole(mixture, window, pairs):
    parts = parts_of(*mixture)
    order = Order(parts, 3, window, epoch_pairs=pairs)
    drawn: list[int] = []
    total = sum(weight for _, weight in mixture)
    for epoch, number in itertools.product(range(3), range(order.windows)):
        drawn += order.pairs(epoch, number).tolist()
        due = epoch * pairs + pairs * (number + 1) // order.windows
        for part in parts:
            mine = [pair for pair in drawn if part.first <= pair < part.first + part.size]
            assert abs(len(mine) - due * part.weight / total) <= 1
            # Every pair once a pass before any comes again.
            for start in range(0, len(mine), part.size):
                assert max(collections.Counter(mine[start : start + part.size]).values()) == 1


def planner(parts: tuple[StoredCorpus, ...] = (), epoch_pairs: int = 0, **settings: Any) -> Planner:
    """For lengths like a corpus's: many short, few long, the sides alike. By no library's random
    numbers."""
    number = np.arange(3000, dtype=np.int64)
    src = (3 + 60 * (number * 7919 % 3001 / 3001) ** 3).astype(np.int64)
    tgt = np.maximum(1, src + number * 104_729 % 9 - 4)
    pairs = of_lengths(src + 1, tgt + 1, *parts)
    return Planner(pairs, BatchConfig(**settings), 11, epoch_pairs=epoch_pairs)


def digest(plans: Planner, epoch: int, window: int) -> str:
    plan = plans.window(epoch, window).plan
    sha256 = hashlib.sha256(repr([tuple(vars(shape).values()) for shape in plan.shapes]).encode())
    for array in (plan.shape_of, plan.starts, plan.row_starts, plan.pairs):
        sha256.update(np.asarray(array, "<i8").tobytes())
    return sha256.hexdigest()[:16]


MIXTURE = (StoredCorpus("small", 0, 500, 3.0), StoredCorpus("large", 500, 2500, 1.0))
PLANS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "bucket": (
        {"form": "bucket", "tokens": 2000, "max_shapes": 5},
        ("0e46b18672dd6109", "80ef5cc0016b411f"),
    ),
    "pack": ({"form": "pack", "tokens": 4000}, ("3efa5557b9670158", "512ce6aaa4f52b27")),
    "windows, bucket": (
        {"form": "bucket", "tokens": 2000, "window": 1000},
        ("47ed9178660a0425", "8bf3fd8ee0293b46"),
    ),
    "set lengths": (
        {"form": "pack", "tokens": 4000, "src_length": 96, "tgt_length": 104},
        ("92ced2af3102d834", "bcaa53832724c582"),
    ),
    "mixture": (
        {"form": "pack", "tokens": 4000, "epoch_pairs": 2001, "parts": MIXTURE},
        ("607b2a93e0bf7b5a", "4125b1f4db7f5b78"),
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_are_those_of_before(name):
    """If another plan is meant, say so in the changelog, and record the new digests here."""
    settings, expected = PLANS[name]
    plans = planner(**settings)
    assert (digest(plans, 0, 0), digest(plans, 5, plans.order.windows - 1)) == expected
