"""`train` and `prepare` as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flaxformer_mt.data.corpus import CONTROL_CHARACTER, EMPTY_SIDE, INVALID_UTF8
from flaxformer_mt.data.prepare.filters import TOO_LONG
from flaxformer_mt.rundir.checkpoints import load_params
from flaxformer_mt.rundir.digests import tree_digest
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.rundir.status import read_status
from tests.system.conftest import ROOT, Run, tiny

DEFECTS = (EMPTY_SIDE, INVALID_UTF8, CONTROL_CHARACTER)


def test_the_run_directory_holds_what_the_readme_says(trained: Path) -> None:
    expected = {"config.json", "vocabulary", "data", "checkpoints", "metrics.jsonl", "tensorboard"}
    assert expected | {"samples", "status.json"} <= {path.name for path in trained.iterdir()}
    kinds = [(line["kind"], line["step"]) for line in read_metrics(trained / "metrics.jsonl")]
    assert kinds == [
        ("train", 5),
        ("train", 10),
        ("valid", 10),
        ("train", 15),
        ("train", 20),
        ("valid", 20),
    ]
    assert "hypothesis" in (trained / "samples" / "step-20.txt").read_text()


def test_a_finished_run_says_so_and_succeeds(command: Run, corpus: Path, trained: Path) -> None:
    done = command("train", *tiny(corpus), "--workdir", trained)
    assert done.returncode == 0
    assert "finished at step 20 (all 20 steps done); nothing to do" in done.stderr


def test_a_changed_setting_is_refused_by_name(command: Run, corpus: Path, trained: Path) -> None:
    done = command("train", *tiny(corpus), "--config.model.d_ff=64", "--workdir", trained)
    assert done.returncode == 2
    assert "'model.d_ff' was 32, is now 64" in done.stderr
    assert "Traceback" not in done.stderr


def test_killed_and_stopped_runs_end_as_an_undisturbed_one(
    command: Run, corpus: Path, trained: Path, tmp_path: Path
) -> None:
    """SIGKILL at some step, then SIGTERM at another, then to the end: bit-equal parameters."""
    workdir = tmp_path / "run"
    arguments = [sys.executable, "-m", "flaxformer_mt.cli.main", "train", *tiny(corpus)]
    # A compilation cache of their own: a killed writer can spoil the one that all tests share.
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    for number, step in ((signal.SIGKILL, 6), (signal.SIGTERM, 12)):
        process = subprocess.Popen(
            [*arguments, "--workdir", str(workdir)],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not (workdir / "checkpoints" / str(step - step % 5)).exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
        if number == signal.SIGTERM:
            # It may have been past its last step when the signal came.
            assert process.returncode in (0, 75), errors
    done = command("train", *tiny(corpus), "--workdir", workdir)
    assert done.returncode == 0, done.stderr
    undisturbed, disturbed = (
        tree_digest(load_params(open_run(path), 20)) for path in (trained, workdir)
    )
    assert disturbed == undisturbed


def test_stopped_runs_say_how_to_go_on(command: Run, corpus: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "flaxformer_mt.cli.main", "train", *tiny(corpus)),
            *("--config.training.steps=100000", "--workdir", str(tmp_path / "run")),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "run" / "checkpoints" / "5").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 75
    assert "SIGTERM received" in errors and "the same command goes on" in errors
    status = read_status(open_run(tmp_path / "run"))
    assert status is not None and status.state == "stopped"


def test_fine_tuning_takes_weights_and_vocabulary_along(
    command: Run, corpus: Path, trained: Path, tmp_path: Path
) -> None:
    arguments = [*tiny(corpus), "--config.training.steps=5", "--config.training.freeze=encoder/*"]
    done = command("train", *arguments, "--workdir", tmp_path / "fine", "--init-from", trained)
    assert done.returncode == 0, done.stderr
    before, after = (
        tree_digest(load_params(open_run(path), which))
        for path, which in ((trained, "best"), (tmp_path / "fine", 5))
    )
    assert before.keys() == after.keys()
    frozen = {name for name in before if name.startswith("encoder/")}
    assert frozen and all(before[name] == after[name] for name in frozen)
    assert any(before[name] != after[name] for name in before.keys() - frozen)

    arguments = [*arguments, "--config.training.steps=6"]
    more = command("train", *arguments, "--workdir", tmp_path / "fine", "--init-from", trained)
    assert more.returncode == 0, more.stderr
    assert "is not used: this run goes on from its own checkpoint" in more.stderr
    assert "resuming after step 5" in more.stderr


def test_fine_tuning_with_another_vocabulary_is_refused(
    command: Run, corpus: Path, trained: Path, tmp_path: Path
) -> None:
    arguments = [*tiny(corpus), "--config.data.vocabulary.size=250"]
    prepared = command("prepare", *arguments, "--workdir", tmp_path / "other")
    assert prepared.returncode == 0, prepared.stderr
    done = command("train", *arguments, "--workdir", tmp_path / "other", "--init-from", trained)
    assert done.returncode == 2
    assert "was trained with another vocabulary" in done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--config.model.d_modl=3"], "did you mean 'd_model'?"),
        (["--config.training.steps=many"], "'many' is not of type int"),
        (["--config.data.train.mine.src=nowhere.en"], "nowhere.en"),
        (["--config", "fils"], "did you mean 'files'?"),
    ],
)
def test_wrong_settings_are_named(
    command: Run, corpus: Path, tmp_path: Path, change: list[str], message: str
) -> None:
    done = command("train", *tiny(corpus), *change, "--workdir", tmp_path / "run")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_prepare_counts_and_shows_what_it_drops(command: Run, corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    shutil.copytree(corpus, folder)
    lines = (folder / "train.en").read_bytes().split(b"\n")
    lines[2], lines[4], lines[6] = b"", b"bad \xff byte", b"a bell \x07 rings"
    (folder / "train.en").write_bytes(b"\n".join(lines))
    done = command("prepare", *tiny(folder), "--workdir", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    for line in (3, 5, 7):
        assert f"train.en:{line}:" in done.stdout
    manifest = json.loads((tmp_path / "run" / "data" / "manifest.json").read_text())
    account = manifest["corpora"][0]
    assert account["read"] == 400
    assert account["kept"] == 400 - sum(account["dropped"].values())
    assert [account["dropped"].pop(reason) for reason in DEFECTS] == [1, 1, 1]
    # With so small a vocabulary some sound pairs exceed the tiny model's length as well.
    assert set(account["dropped"]) <= {TOO_LONG}


def test_unequal_numbers_of_lines_are_an_error(command: Run, corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    shutil.copytree(corpus, folder)
    with open(folder / "train.en", "a") as stream:
        stream.write("One line too many.\n")
    done = command("train", *tiny(folder), "--workdir", tmp_path / "run")
    assert done.returncode == 2
    assert "train.en" in done.stderr and "401" in done.stderr and "400" in done.stderr
