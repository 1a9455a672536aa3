"""The search for the largest batch, on devices that are a formula."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from flaxformer_mt.planning.fit import Need, search


def device(fixed: int, a_row: int, square: float, available: int, kink: int = 10**9):
    """Memory that grows a little faster than rows, and thrice as fast from `kink`."""
    calls: list[int] = []

    def measure(rows: int) -> Need:
        calls.append(rows)
        needed = int(fixed + a_row * (rows + 2 * max(rows - kink, 0)) + square * rows * rows)
        return Need(rows, needed, available, needed <= available)

    return measure, calls


@given(
    fixed=st.integers(0, 20_000),  # from 16,000 nothing fits
    a_row=st.integers(1, 400),
    square=st.floats(0, 0.02),
    start=st.integers(8, 4000).map(lambda rows: rows // 8 * 8),
    multiple=st.sampled_from([1, 8]),
    kink=st.integers(8, 4000),
)
def test_finds_nearly_the_largest_in_few_compilations(fixed, a_row, square, start, multiple, kink):
    measure, calls = device(fixed, a_row, square, 16_000, kink)
    found = search(measure, start=start, multiple=multiple)
    assert len(calls) == len(set(calls)) <= 8
    assert all(rows % multiple == 0 and rows > 0 for rows in calls)
    assert [need.rows for need in found.tried] == calls
    largest = found.largest
    if largest is not None:
        # Either within a tenth of the memory, or the next step up does not fit, or out of tries.
        above = measure(largest.rows + multiple)
        assert largest.fits
        assert largest.needed >= 0.9 * 16_000 or not above.fits or len(found.tried) == 8
    elif len(found.tried) < 8:
        assert min(calls) == multiple


@pytest.mark.parametrize(
    ("a_row", "kink", "start", "available"),
    [
        (10, 10**9, 96, 16_000),
        (10, 10**9, 6400, 16_000),  # a start that does not fit
        # As with a loss whose logits outgrow their chunk: the first two sizes promise too much.
        (2, 4096, 16, 160_000),
    ],
)
def test_nine_tenths_of_the_memory_are_used(a_row, kink, start, available):
    measure, calls = device(1000, a_row, 0, available, kink)
    found = search(measure, start=start, multiple=8)
    assert 0.9 * available <= found.largest.needed <= available, calls
    assert len(calls) <= 4 or start != 96, "a linear device takes three or four compilations"
