"""Losses beside other packages' losses: means at the same numbers of tokens, and their picture."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from benchmarks import learning_curves
from benchmarks.learning_curves import table
from benchmarks.training_contestants.contest import read_rows

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


@pytest.mark.extended
def test_the_command_writes_result_and_picture(tmp_path, monkeypatch, capsys):
    """On a corpus of a hundred lines, with losses that a stand-in reports."""
    for split, count in {"train": 100, "val": 8, "test_2016_flickr": 8}.items():
        for lang in ("en", "de"):
            lines = [f"{'abc ' * (1 + n % 7)}{lang} {n % 9}\n" for n in range(count)]
            (tmp_path / f"{split}.lc.norm.tok.{lang}").write_text("".join(lines))
    monkeypatch.setattr(learning_curves, "WORKLOADS", {"multi30k": small()})

    def losses(name, contestant, folder, *rest):
        return FALLING[: len(read_rows(str(folder / "batches.npz")))], f"{name}, a stand-in"

    monkeypatch.setattr(learning_curves, "losses", losses)
    places = ["--workdir", str(tmp_path / "work"), "--data", str(tmp_path)]
    picture = tmp_path / "curves.svg"
    arguments = [*places, "--tokens", "300", "--result", str(tmp_path), "--picture", str(picture)]
    assert learning_curves.main(arguments) == 0
    result = json.loads((tmp_path / "learning_curves.json").read_text())
    assert result["metrics"]["target_tokens"] >= 300
    assert result["metrics"]["loss_below_joeynmt"] == 0
    assert str(tmp_path) not in json.dumps(result)
    assert picture.read_text().startswith("<?xml")
    for name in ("ours", "joeynmt"):
        assert (tmp_path / "work" / f"{name}.json").exists()


def small():
    """Multi30k's workload for plain files of a few lines."""
    sides = [
        f"data.{split}.{side}={name}.lc.norm.tok.{lang}"
        for split, name in {"train.multi30k": "train", "valid": "val"}.items()
        for side, lang in {"src": "en", "tgt": "de"}.items()
    ]
    overrides = ("data.vocabulary.size=40", "data.batch.tokens=128", *sides)
    return dataclasses.replace(learning_curves.WORKLOADS["multi30k"], overrides=overrides)
