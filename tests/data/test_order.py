"""The order of an epoch: a permutation of any size, windows that cover it, mixtures that hold."""

from __future__ import annotations

import collections
import itertools

import numpy as np
from hypothesis import given, settings, strategies as st

from flaxformer_mt.data.order import Order, Part, permute

KEYS = np.random.Philox(5).random_raw(8)


def whole_epoch(order: Order, epoch: int) -> list[int]:
    return np.concatenate([order.pairs(epoch, w) for w in range(order.windows)]).tolist()


@settings(deadline=None)
@given(size=st.integers(1, 2000), seed=st.integers(0, 2**32))
def test_every_number_is_hit_exactly_once(size: int, seed: int) -> None:
    keys = np.random.Philox(seed).random_raw(8)
    found = permute(np.arange(size, dtype=np.uint64), size, keys)
    assert sorted(found.tolist()) == list(range(size))


def test_a_permutation_looks_random() -> None:
    size = 100_000
    found = permute(np.arange(size, dtype=np.uint64), size, KEYS).astype(np.int64)
    # Neighbours are as far apart as strangers: a third of the size on average.
    assert abs(np.abs(np.diff(found)).mean() / (size / 3) - 1) < 0.02
    # The places of the first tenth are spread evenly over ten parts.
    counts = np.bincount(found[: size // 10] * 10 // size, minlength=10)
    assert ((counts - 1000) ** 2 / 1000).sum() < 30  # chi-squared, 9 degrees of freedom
    assert abs(np.corrcoef(found, np.arange(size))[0, 1]) < 0.02


def parts_of(*sizes_and_weights: tuple[int, float]) -> tuple[Part, ...]:
    firsts = itertools.accumulate((size for size, _ in sizes_and_weights), initial=0)
    return tuple(Part("", first, *each) for first, each in zip(firsts, sizes_and_weights))  # noqa: B905


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=4), window=st.integers(1, 80))
def test_every_pair_once_an_epoch_in_windows_of_equal_size(sizes: list[int], window: int) -> None:
    order = Order(parts_of(*((size, 0.0) for size in sizes)), 3, window)
    assert sorted(whole_epoch(order, 2)) == list(range(sum(sizes)))
    lengths = [len(order.pairs(2, number)) for number in range(order.windows)]
    assert max(lengths) - min(lengths) <= 1
    assert max(lengths) <= 1.5 * window + 1


def test_epochs_and_seeds_differ() -> None:
    orders = [Order(parts_of((500, 0.0)), seed, 100) for seed in (1, 2)]
    assert len({tuple(whole_epoch(order, epoch)) for order in orders for epoch in (0, 1)}) == 4


MIXTURE = st.lists(st.tuples(st.integers(1, 50), st.sampled_from([0.25, 1.0, 3.0])), min_size=1)


@settings(deadline=None)
@given(mixture=MIXTURE, window=st.integers(1, 60), pairs=st.integers(1, 120))
def test_in_a_mixture_shares_hold_at_every_moment_and_passes_are_whole(
    mixture: list[tuple[int, float]], window: int, pairs: int
) -> None:
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
