"""Length filters at their borders."""

from __future__ import annotations

import numpy as np

from flaxformer_mt.config.schema import FilterConfig
from flaxformer_mt.data.filters import too_long, uneven

SRC = np.array([1, 10, 11, 2, 30, 4])
TGT = np.array([1, 10, 2, 11, 10, 12])


def test_too_long_counts_either_side() -> None:
    found = too_long(SRC, TGT, FilterConfig(max_length=10))
    assert found.tolist() == [False, False, True, True, True, True]


def test_uneven_is_exceeding_the_factor_in_either_direction() -> None:
    found = uneven(SRC, TGT, FilterConfig(max_ratio=3.0))
    assert found.tolist() == [False, False, True, True, False, False]


def test_ratio_zero_keeps_all() -> None:
    assert not uneven(SRC, TGT, FilterConfig(max_ratio=0.0)).any()
