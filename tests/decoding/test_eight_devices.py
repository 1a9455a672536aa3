"""Beam search split over the sentences of a batch finds what one device finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.extended
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        # Many programs, run once each: nothing to optimise them for.
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    command = [sys.executable, "-W", "error", "-m", "tests.decoding.on_eight_devices"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "full rematerialization" not in done.stderr
    return json.loads(done.stdout)


def assert_same(ours: list[Any], theirs: list[Any]) -> None:
    """Tokens and ends exactly, probabilities to rounding."""
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert [(tokens, end) for tokens, _, _, end in mine] == [
            (tokens, end) for tokens, _, _, end in other
        ]
        for (_, *numbers, _), (_, *wanted, _) in zip(mine, other, strict=True):
            assert numbers == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("devices", [3, 8])
@pytest.mark.parametrize("beam", [1, 4])
def test_equals_one_device(results, beam, devices):
    assert_same(results[f"{beam} on {devices}"], results[f"{beam} on 1"])


@pytest.mark.parametrize("devices", ["3", "8"])
def test_given_translations_have_the_scores_of_one_device(results, devices):
    for mine, other in zip(results["scores"][devices], results["scores"]["1"], strict=True):
        assert mine == pytest.approx(other, abs=1e-5)


def test_parameters_split_for_training_are_gathered(results):
    assert results["everywhere"]
    assert_same(results["spread"], results["4 on 1"])


def test_every_device_has_its_rows(results):
    """Of the sources and of what was found; the last batch has fewer, and padding among them."""
    assert len(results["rows"]) >= 4
    for rows, *parts in results["rows"]:
        assert parts == [rows // 8] * 8
