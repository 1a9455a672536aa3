"""Losses beside other packages' losses: means at the same numbers of tokens, and their picture."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks import learning_curves
from benchmarks.learning_curves import table
from benchmarks.training_contestants.contest import read_rows
from tests.benchmarks.test_training_contest import TOY

TOKENS = np.cumsum([10] * 90)
FALLING = [9 - step / 30 for step in range(90)]


def test_losses_are_compared_at_the_same_numbers_of_tokens():
    later = [loss + 0.5 for loss in FALLING]
    metrics, signatures = table(
        TOKENS, {"ours": FALLING, "peer": later}, {"ours": "A", "peer": "B"}
    )
    assert (metrics["steps"], metrics["target_tokens"]) == (90, 900)
    assert metrics["ours_loss_after_3_thirds"] == pytest.approx(np.mean(FALLING[70:]))
    assert metrics["ours_loss_after_1_thirds"] == pytest.approx(np.mean(FALLING[10:30]))
    assert metrics["loss_below_peer"] == pytest.approx(0.5)
    assert signatures["peer_loss_after_2_thirds"] == "B"


def test_the_command_writes_result_and_picture(tmp_path, monkeypatch):
    """On made-up batches, with losses that a stand-in reports."""

    def losses(name, contestant, folder, *_):
        assert (folder / f"{name}.json").exists()
        return FALLING[: len(read_rows(str(folder / "batches.npz")))], f"{name}, a stand-in"

    workload = dataclasses.replace(TOY, steps=90)
    monkeypatch.setattr(learning_curves, "WORKLOADS", {"multi30k": workload})
    monkeypatch.setattr(learning_curves, "losses", losses)
    picture = tmp_path / "curves.svg"
    places = ["--workdir", str(tmp_path / "work"), "--data", str(tmp_path)]
    places += ["--result", str(tmp_path), "--picture", str(picture)]
    assert learning_curves.main([*places, "--tokens", "3600"]) == 0
    result = json.loads((tmp_path / "learning_curves.json").read_text())
    assert result["metrics"]["target_tokens"] == 90 * 8 * 5
    assert result["metrics"]["loss_below_joeynmt"] == 0
    assert str(tmp_path) not in json.dumps(result)
    assert picture.read_text().startswith("<?xml")
