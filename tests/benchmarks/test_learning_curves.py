"""Losses beside other packages' losses: means at the same numbers of tokens, and their picture."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import learning_curves
from benchmarks.learning_curves import WINDOW, curve, table
from benchmarks.training_contestants.contest import read_rows
from flaxformer_mt.figures.canvas import rendered
from flaxformer_mt.figures.curves import curves
from flaxformer_mt.figures.runs import panels
from tests.figures.examples import svg_texts

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


def test_a_curve_has_the_means_of_windows_at_their_tokens():
    run = curve("ours", TOKENS, FALLING)
    line = run.series["train"].line("tokens", "loss")
    assert line[:, 0].tolist() == [200, 400, 600, 800]
    assert line[0, 1] == pytest.approx(np.mean(FALLING[:WINDOW]))
    layout = curves([run, curve("peer", TOKENS, FALLING)], panels([run], ["loss"]), axis="tokens")
    texts = svg_texts(rendered(layout, "svg"))
    assert any("peer" in text for text in texts) and "target tokens" in texts
    assert len(curve("short", TOKENS[:3], FALLING[:3]).series["train"].line("steps", "loss")) == 1


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
    workload = learning_curves.WORKLOADS["multi30k"]
    sides = {
        f"data.{split}.{side}={name}.lc.norm.tok.{lang}"
        for split, name in {"train.multi30k": "train", "valid": "val"}.items()
        for side, lang in {"src": "en", "tgt": "de"}.items()
    }
    overrides = ("data.vocabulary.size=40", "data.batch.tokens=128", *sorted(sides))
    return type(workload)(
        experiment=workload.experiment, overrides=overrides, shape=None, steps=workload.steps
    )
