"""`average`, `translate`, `evaluate`, `config` as a user runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.system.conftest import Run


@pytest.fixture(scope="module")
def averaged(command: Run, trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("averaged") / "run"
    shutil.copytree(trained, workdir)
    done = command("average", "--workdir", workdir)
    assert done.returncode == 0, done.stderr
    assert "averaged steps 10, 15, 20" in done.stderr
    return workdir


def test_translate_keeps_lines_and_order(command: Run, trained: Path) -> None:
    source = "The old dog sleeps.\n\nWe are going home.\n"
    done = command("translate", "--workdir", trained, stdin=source)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert len(lines) == 4 and lines[1] == "" and lines[3] == ""
    alone = command("translate", "--workdir", trained, stdin="We are going home.\n")
    assert alone.stdout == lines[2] + "\n"


def test_translate_says_which_lines_are_too_long(command: Run, trained: Path) -> None:
    long = "The old dog sleeps. " * 40
    done = command("translate", "--workdir", trained, stdin=f"Short.\n{long}\n")
    assert done.returncode == 0
    assert "standard input:2: longer than the model takes; translated in pieces" in done.stderr
    assert len(done.stdout.split("\n")) == 3


def test_translate_refuses_what_is_not_text(command: Run, trained: Path) -> None:
    done = command("translate", "--workdir", trained, stdin=b"Good.\n\xff\xfe\n")
    assert done.returncode == 2
    assert "standard input:2: is not UTF-8 text" in done.stderr
    assert "Traceback" not in done.stderr


def test_n_best_with_scores_descends(command: Run, averaged: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("The old dog sleeps.\n")
    done = command(
        *("translate", "--workdir", averaged, "--n-best", 3, "--scores"),
        *("--input", source, "--output", target),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "the weights 'average of steps 10, 15, 20'" in done.stderr
    rows = [line.split("\t") for line in target.read_text().splitlines()]
    scores = [float(score) for _, score, _ in rows]
    assert [number for number, _, _ in rows] == ["1"] * 3
    assert scores == sorted(scores, reverse=True)


def test_going_on_leaves_the_average_behind(command: Run, averaged: Path, tmp_path: Path) -> None:
    workdir = shutil.copytree(averaged, tmp_path / "run")
    done = command("train", "--workdir", workdir, "--config.training.steps=21")
    assert done.returncode == 0, done.stderr
    assert "the average of steps 10, 15, 20 is out of date with the next checkpoint" in done.stderr
    done = command("translate", "--workdir", workdir, stdin="A dog.\n")
    assert done.returncode == 0, done.stderr
    assert "the average is of steps 10, 15, 20, and the run is at step 21 now" in done.stderr
    assert "The weights used are 'best, step" in done.stderr


def test_evaluate_scores_the_configured_test_sets(command: Run, averaged: Path) -> None:
    done = command("evaluate", "--workdir", averaged)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("held_out: sacrebleu_13a ")
    assert "tok:13a" in done.stdout
    recorded = json.loads((averaged / "evaluation" / "held_out.json").read_text())
    assert recorded["sentences"] == 20 and recorded["weights"] == "average of steps 10, 15, 20"
    hypotheses = (averaged / "evaluation" / "held_out.hyp.txt").read_text()
    assert hypotheses.count("\n") == 20


def test_evaluate_own_files_as_json(command: Run, averaged: Path, corpus: Path) -> None:
    done = command(
        *("evaluate", "--workdir", averaged, "--tokenized", "--json", "--beam-size", 1),
        *("--src", corpus / "test.en", "--ref", corpus / "test.de", "--name", "mine"),
    )
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)["mine"]
    assert scores["beam_size"] == 1
    assert "tok:none" in scores["signatures"]["bleu_tokenized"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["evaluate", "--set", "nowhere"], 2, "this run has held_out, valid"),
        (["evaluate", "--src", "x.en"], 2, "--src and --ref go together"),
        (["translate", "--weights", "7"], 1, "has no checkpoint 7"),
        (["translate", "--weights", "newest"], 2, "write average, best, latest, auto"),
        (["translate", "--n-best", "9"], 2, "must lie between 1 and the beam size, 4"),
        (["translate", "--input", "nowhere.txt"], 2, "nowhere.txt: cannot be read"),
        (["average", "--last", "50"], 1, "cannot average 50 regular checkpoints"),
    ],
)
def test_wrong_use_is_explained(
    command: Run, trained: Path, arguments: list[str], status: int, message: str
) -> None:
    done = command(arguments[0], "--workdir", trained, *arguments[1:])
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_directory_that_is_no_run_is_named(command: Run, tmp_path: Path) -> None:
    done = command("translate", "--workdir", tmp_path, stdin="Hello.\n")
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr and "Traceback" not in done.stderr


def test_config_shows_and_explains(command: Run) -> None:
    shown = command("config", "--config", "wmt14_en_de:big", "--config.training.seed=7", "--json")
    assert shown.returncode == 0, shown.stderr
    config = json.loads(shown.stdout)
    assert config["model"]["d_model"] == 1024 and config["training"]["seed"] == 7
    explained = command("config", "--explain")
    assert "model.d_model = 512: width of embeddings" in explained.stdout


def test_an_unknown_command_is_refused(command: Run) -> None:
    done = command("trian")
    assert done.returncode == 2
    assert "train" in done.stderr
