"""The estimate of a GPU's step beside the one step that was measured on a card."""

import json

import pytest

from benchmarks import RESULTS
from tests.docs.markdown import ROOT


def metrics(name):
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["metrics"]


def test_the_estimate_is_within_a_tenth_of_the_measured_step():
    """Base with activations in float32, 784 rows of 32 + 32: the program that an H100 ran."""
    tokens_per_second = metrics("first_contact")["paper_base_ours_bfloat16_tokens_per_second"]
    measured_ms = 1e3 * 784 * 32 / tokens_per_second
    estimated_ms = metrics("plan_gpu")["base_h100_32_float32_step_ms"]
    assert estimated_ms == pytest.approx(measured_ms, rel=0.1)


def test_memory_is_within_a_tenth_of_the_measured():
    measured_mib = metrics("first_contact")["paper_base_ours_bfloat16_device_memory_mib"]
    planned_gib = metrics("plan_gpu")["base_h100_32_float32_memory_gib"]
    assert 1024 * planned_gib == pytest.approx(measured_mib, rel=0.1)


def test_steps_are_as_fast_as_they_were_planned_to_become():
    """Of the steps before, by the same estimate: 40.9, 49.6 and 109.9 ms."""
    planned = metrics("plan_gpu")
    assert planned["base_h100_32_step_ms"] <= 27
    assert planned["base_h100_256_step_ms"] <= 27
    assert planned["big_h100_256_step_ms"] <= 70


def test_a_search_needs_few_programs_which_compile_soon():
    planned = metrics("plan_gpu")
    assert planned["search_h100_programs"] <= 8
    assert planned["search_h100_longest_compile_seconds"] <= 6
    assert planned["search_h100_compile_seconds"] <= 40
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    for figure in (
        f"it needs {planned['search_h100_programs']:.0f} and",
        f"{planned['search_h100_compile_seconds']:.1f} s in all",
        f"and {planned['search_h100_longest_compile_seconds']:.1f} s for the",
        f"{planned['search_h100_least_bytes_to_least']:.1f} to "
        f"{planned['search_h100_most_bytes_to_least']:.1f} times",
    ):
        assert figure in " ".join(page.split()), figure


@pytest.mark.parametrize("case", ["base_h100_32", "base_h100_256", "big_h100_256"])
def test_the_documentation_has_the_recorded_figures(case):
    planned = metrics("plan_gpu")
    cells = [
        f"{planned[f'{name}_step_ms']:.1f} ms, {planned[f'{name}_gigabytes']:.0f} GB"
        for name in (f"{case}_float32", case)
    ]
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert f"| {' | '.join(cells)} |" in page
