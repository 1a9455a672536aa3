"""Planned windows: shapes for what is drawn, and windows long enough to fill batches."""

from __future__ import annotations

import numpy as np
import pytest

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.order import Part
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.data.store import TokenPairs
from tests.data.test_bucket import corpus


def pairs_of(src: np.ndarray, tgt: np.ndarray, *parts: Part) -> TokenPairs:
    pairs = TokenPairs.from_lists([[5] * (n - 1) for n in src], [[5] * (n - 1) for n in tgt])
    return TokenPairs(pairs.sides["src"].shards, pairs.sides["tgt"].shards, parts)


@pytest.mark.parametrize(("form", "bound"), [("bucket", 0.12), ("pack", 0.06)])
def test_in_a_mixture_shapes_are_for_the_pairs_as_they_are_drawn(form: str, bound: float) -> None:
    """Few long pairs of great weight beside many short ones."""
    random = np.random.default_rng(0)
    lengths = np.concatenate([np.full(6000, 8), random.integers(130, 250, 600)])
    pairs = pairs_of(lengths, lengths, Part("short", 0, 6000, 1.0), Part("long", 6000, 600, 9.0))
    batch = BatchConfig(form=form, tokens=25_000)  # type: ignore[arg-type]
    planner = Planner(pairs, batch, 1, epoch_pairs=6000)
    window = planner.window(0, 0)
    src, tgt = (pairs.sides[side].lengths(window.plan.pairs) for side in ("src", "tgt"))
    assert (src > 100).mean() == pytest.approx(0.9, abs=0.01)
    assert window.plan.padding(src, tgt) < bound


def test_windows_of_an_epoch_hold_every_pair_once() -> None:
    src, tgt = corpus(5000)
    planner = Planner(pairs_of(src, tgt), BatchConfig(tokens=4000, window=900), 1)
    assert planner.order.windows == 6
    seen = [planner.window(2, number).plan.pairs for number in range(6)]
    assert sorted(np.concatenate(seen).tolist()) == list(range(5000))
