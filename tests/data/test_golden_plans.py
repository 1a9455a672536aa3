"""Plans do not change silently: a stopped run goes on with the batches it would have had.

What is recorded here are digests of whole windows' plans, for lengths that a formula gives.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.order import Part
from flaxformer_mt.data.planner import Planner
from tests.data.pairs import of_lengths


def planner(parts: tuple[Part, ...] = (), epoch_pairs: int = 0, **settings: Any) -> Planner:
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


MIXTURE = (Part("small", 0, 500, 3.0), Part("large", 500, 2500, 1.0))
PLANS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "bucket": (
        {"form": "bucket", "tokens": 2000, "max_shapes": 5},
        ("0e46b18672dd6109", "80ef5cc0016b411f"),
    ),
    "pack": ({"form": "pack", "tokens": 4000}, ("f7ad6cba4ab55c56", "7f1603b9f3ac7f4a")),
    "windows, bucket": (
        {"form": "bucket", "tokens": 2000, "window": 1000},
        ("47ed9178660a0425", "8bf3fd8ee0293b46"),
    ),
    "windows, pack": (
        {"form": "pack", "tokens": 4000, "window": 1000},
        ("596ca8e10c8461e3", "07b08ed5765b3a75"),
    ),
    "set lengths": (
        {"form": "pack", "tokens": 4000, "src_length": 96, "tgt_length": 104},
        ("92ced2af3102d834", "bcaa53832724c582"),
    ),
    "mixture": (
        {"form": "pack", "tokens": 4000, "epoch_pairs": 2001, "parts": MIXTURE},
        ("f1287bba30786982", "92fc7913a4c1a799"),
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_are_those_of_before(name: str) -> None:
    """If another plan is meant, say so in the changelog, and record the new digests here."""
    settings, expected = PLANS[name]
    plans = planner(**settings)
    last = plans.order.windows - 1
    assert (digest(plans, 0, 0), digest(plans, 5, last)) == expected


@pytest.mark.parametrize(("form", "bound"), [("bucket", 0.12), ("pack", 0.06)])
def test_in_a_mixture_shapes_are_for_the_pairs_as_they_are_drawn(form: str, bound: float) -> None:
    """Few long pairs of great weight beside many short ones."""
    random = np.random.default_rng(0)
    lengths = np.concatenate([np.full(6000, 8), random.integers(130, 250, 600)])
    pairs = of_lengths(lengths, lengths, Part("short", 0, 6000, 1.0), Part("long", 6000, 600, 9.0))
    batch = BatchConfig(form=form, tokens=25_000)  # type: ignore[arg-type]
    planner = Planner(pairs, batch, 1, epoch_pairs=6000)
    window = planner.window(0, 0)
    src = pairs.sides["src"].lengths(window.plan.pairs)
    assert (src > 100).mean() == pytest.approx(0.9, abs=0.01)
    assert window.padding < bound
