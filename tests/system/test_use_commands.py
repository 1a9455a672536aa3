"""An average, from its making until training has left it behind; what the other commands say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run

__all__ = ["run"]
AVERAGE = "average of steps 10, 15, 20"


def test_an_average_is_used_until_training_goes_on(
    run: Run, trained: Path, corpus: Path, tmp_path: Path
) -> None:
    workdir = shutil.copytree(trained, tmp_path / "run")
    done = run("average", "--workdir", workdir)
    assert done.status == 0 and "averaged steps 10, 15, 20" in done.errors

    translate = ("translate", "--workdir", workdir)
    done = run(*translate, "--n-best", 3, "--scores", stdin=b"The old dog sleeps.\n")
    assert done.status == 0 and f"the weights '{AVERAGE}'" in done.errors
    rows = [line.split("\t") for line in done.output.splitlines()]
    scores = [float(score) for _, score, _ in rows]
    assert [number for number, _, _ in rows] == ["1"] * 3
    assert scores == sorted(scores, reverse=True)

    evaluate = ("evaluate", "--workdir", workdir)
    done = run(*evaluate)  # the config's test sets
    assert done.status == 0 and done.output.startswith("held_out: sacrebleu_13a ")
    recorded = json.loads((workdir / "evaluation" / "held_out.json").read_text())
    assert recorded["sentences"] == 20 and recorded["weights"] == AVERAGE
    assert (workdir / "evaluation" / "held_out.hyp.txt").read_text().count("\n") == 20
    own = ("--src", corpus / "test.en", "--ref", corpus / "test.de", "--name", "mine")
    done = run(*evaluate, *own, "--tokenized", "--json", "--beam-size", 1)
    scored = json.loads(done.output)["mine"]
    assert scored["beam_size"] == 1
    assert "tok:none" in scored["signatures"]["bleu_tokenized"]

    done = run("train", "--workdir", workdir, "--config.training.steps=21")
    assert done.status == 0
    assert f"the {AVERAGE} is out of date with the next checkpoint" in done.errors
    done = run(*translate, stdin=b"A dog.\n")
    assert done.status == 0 and "with the weights 'best, step" in done.errors


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["evaluate", "--set", "nowhere"], 2, "this run has held_out, valid"),
        (["translate", "--n-best", "9"], 2, "must lie between 1 and the beam size, 4"),
        (["average", "--last", "50"], 1, "cannot average 50 regular checkpoints"),
        (["train", "--profile-steps", "5-9"], 2, "'5-9': write A:B"),
        (["train", "--profile-steps", "3:9"], 2, "cannot be traced: this run goes on after step"),
        (["train", "--profile-steps", "22:99"], 2, "cannot be traced: training ends at step 30"),
    ],
)
def test_wrong_use_is_explained(
    run: Run, trained: Path, tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    command, *options = arguments
    more = ["--config.training.steps=30"] if command == "train" else []
    workdir = shutil.copytree(trained, tmp_path / "run")
    done = run(command, "--workdir", workdir, *more, *options)
    assert done.status == status and message in done.errors


def test_config_shows_and_explains(run: Run) -> None:
    shown = run("config", "--config", "wmt14_en_de:big", "--config.training.seed=7", "--json")
    config = json.loads(shown.output)
    assert config["model"]["d_model"] == 1024 and config["training"]["seed"] == 7
    assert "model.d_model = 512: width of embeddings" in run("config", "--explain").output


def test_an_unknown_command_is_refused(run: Run) -> None:
    done = run("trian")
    assert done.status == 2 and "train" in done.errors
