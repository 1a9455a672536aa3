"""The recorded results are of the one form."""

from __future__ import annotations

from benchmarks.result_file import read_results


def test_the_recorded_results_are_well_formed():
    assert read_results()
