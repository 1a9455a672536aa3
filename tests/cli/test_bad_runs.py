"""Run directories that lack something: told before anything is trained or translated."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.cli import resolve, train as training
from flaxformer_mt.cli.main import explained
from flaxformer_mt.config import ConfigError, load_config, to_dict
from flaxformer_mt.rundir import RunDirectoryError, layout
from flaxformer_mt.rundir.layout import (
    RunDirectory,
    Status,
    create,
    make_folder,
    open_run,
    read_record,
    read_status,
    record_start,
    write_status,
)
from flaxformer_mt.rundir.lock import locked
from flaxformer_mt.training.instruments import Goodput
from flaxformer_mt.training.state import StartError
from tests.cli.conftest import Run, settings
from tests.conftest import ROOT


class Reached(Exception):
    """The point at which a model would be built."""


def reached(*_: object, **__: object) -> None:
    raise Reached


@pytest.fixture
def prepared(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[str]]:
    """A prepared run and its overrides; training ends where a model would be built."""

    monkeypatch.setattr(training, "build", reached)
    arguments = settings(corpus)
    assert run("prepare", *arguments, "--workdir", tmp_path / "run").status == 0
    return tmp_path / "run", [a.removeprefix("--config.") for a in arguments[2:]]


def train(workdir: Path, overrides: list[str]) -> None:
    training.train_run(str(workdir), "files", overrides, ["train"])


def test_without_a_checkpoint_any_setting_may_change(
    run: Run, prepared: tuple[Path, list[str]]
) -> None:
    workdir, overrides = prepared
    with pytest.raises(Reached):
        train(workdir, [*overrides, "model.d_model=64"])
    assert read_record(open_run(workdir)).config["model"]["d_model"] == 64
    (workdir / "checkpoints" / "5").mkdir(parents=True)
    with pytest.raises(ConfigError, match="'model.d_model' was 64, is now 32"):
        train(workdir, [*overrides, "model.d_model=32"])
    arguments = ["--config", "files", *(f"--config.{o}" for o in overrides)]
    done = run("prepare", *arguments, "--config.model.d_model=32", "--workdir", workdir)
    assert done.status == 2 and "'model.d_model' was 64, is now 32" in done.last


def test_a_finished_run_that_prepare_was_given_more_steps_for_is_trained(
    run: Run, prepared: tuple[Path, list[str]]
) -> None:
    workdir, overrides = prepared
    arguments = ["--config", "files", *(f"--config.{o}" for o in overrides), "--workdir", workdir]
    write_status(open_run(workdir), Status(state="finished", step=5))
    assert run("prepare", *arguments).status == 0
    assert "nothing to do" in run("train", *arguments).errors
    done = run("train", "--workdir", workdir, "--config.data.tgt_lang=nl")
    assert done.status == 2 and "'data.train.mine.tgt' = 'train.de' ends in 'de'" in done.last
    added = ("--config.data.test.new.kind=synthetic", "--config.data.test.new.size=9")
    done = run("train", "--workdir", workdir, *added)
    assert done.status == 0 and "data.test.new.size: was None, now 9" in done.errors
    assert "nothing to do" in done.last
    assert read_record(open_run(workdir)).config["data"]["test"]["new"]["size"] == 9
    assert run("prepare", *arguments, "--config.training.steps=8").status == 0
    with pytest.raises(Reached):
        train(workdir, [*overrides, "training.steps=8"])


def test_a_finished_run_whose_next_start_is_killed_is_trained_by_the_one_after(
    prepared: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after its settings are recorded: that it is to go on is then another file's matter."""
    workdir, overrides = prepared
    overrides = [*overrides, "training.steps=8"]
    write_status(open_run(workdir), Status(state="finished", step=5))

    def record_and_be_killed(*arguments: Any) -> None:
        record_start(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(layout, "record_start", record_and_be_killed)
        train(workdir, overrides)
    with pytest.raises(Reached):
        train(workdir, overrides)


def test_a_failed_run_says_how_far_it_had_come(
    prepared: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    workdir, overrides = prepared

    def broken(*arguments: Any) -> None:
        goodput = next(each for each in arguments if isinstance(each, Goodput))
        goodput.step = 80
        raise RuntimeError("no memory left\nand more")

    monkeypatch.setattr(training, "_train", broken)
    with pytest.raises(RuntimeError, match="no memory left"):
        train(workdir, overrides)
    assert read_status(RunDirectory(workdir)) == Status(
        state="failed", step=80, reason="no memory left"
    )


def test_a_trained_run_gets_no_new_vocabulary(prepared: tuple[Path, list[str]]) -> None:
    workdir, overrides = prepared
    (workdir / "checkpoints" / "5").mkdir(parents=True)
    shutil.rmtree(workdir / "vocabulary")
    shutil.rmtree(workdir / "data")
    with pytest.raises(RunDirectoryError, match="vocabulary: is missing, and the checkpoints were"):
        train(workdir, overrides)
    assert not (workdir / "vocabulary").exists()


def test_a_damaged_average_keeps_nothing_from_training(
    prepared: tuple[Path, list[str]], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    workdir, overrides = prepared
    (workdir / "checkpoints" / "average" / "meta").mkdir(parents=True)
    (workdir / "checkpoints" / "average" / "meta" / "metadata").write_text("{}")
    with pytest.raises(Reached):
        train(workdir, overrides)
    told = capfdbinary.readouterr().err.decode()
    assert "average: meta does not match its checksum; run `average` again; until then" in told


def test_weights_to_start_from_are_looked_for_first(
    prepared: tuple[Path, list[str]], tmp_path: Path
) -> None:
    workdir, overrides = prepared
    other = str(tmp_path / "other")
    with pytest.raises(StartError, match=f"{workdir}: holds no checkpoint to start from"):
        training.train_run(other, "files", overrides, ["train"], str(workdir))
    with pytest.raises(StartError, match="is this run itself"):
        training.train_run(other, "files", overrides, ["train"], other)
    assert not (tmp_path / "other" / "vocabulary").exists()


def test_what_a_run_is_says_the_one_that_holds_it(run: Run, corpus: Path, tmp_path: Path) -> None:
    """Of two that begin it with different settings, the one that comes second changes nothing."""
    begun = RunDirectory(tmp_path / "run")
    make_folder(begun)
    with locked(begun, "testing"):
        for command in ("train", "prepare"):
            done = run(command, *settings(corpus), "--workdir", begun)
            assert done.status == 1 and f"process {os.getpid()} on" in done.last
            assert "is testing; wait for it" in done.last
            assert not begun.config_file.exists()


def test_what_has_become_a_run_meanwhile_is_gone_on_with(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another began it and let go of it between the look and the lock."""
    begun = RunDirectory(tmp_path / "run")

    @contextlib.contextmanager
    def locked_late(*arguments: Any) -> Iterator[Any]:
        overrides = [a.removeprefix("--config.") for a in settings(corpus, model__d_model=64)[2:]]
        create(begun.path, to_dict(load_config("files", overrides)), ["theirs"])
        with locked(*arguments) as holding:
            yield holding

    monkeypatch.setattr(resolve, "locked", locked_late)
    monkeypatch.setattr(training, "build", reached)
    overrides = [a.removeprefix("--config.") for a in settings(corpus)[2:]]
    with pytest.raises(Reached):
        train(begun.path, overrides)
    record = read_record(begun)
    assert [start.command_line for start in record.starts] == [("theirs",), ("train",)]
    assert record.config == to_dict(load_config("files", overrides))


def test_a_file_cannot_become_a_run(run: Run, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in (("train",), ("train", "--dry-run"), ("prepare",)):
        done = run(*command, *settings(corpus), "--workdir", tmp_path / "file")
        assert done.status == 2 and "file: is a file; choose a directory for the run" in done.last


def test_a_refused_config_leaves_no_folder_behind(run: Run, corpus: Path, tmp_path: Path) -> None:
    done = run("train", *settings(corpus, model__d_modl=3), "--workdir", tmp_path / "run")
    assert done.status == 2 and "did you mean 'd_model'?" in done.last
    assert not (tmp_path / "run").exists()


def test_a_missing_right_is_no_damage(
    run: Run, prepared: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody should delete a store that only its owner can read."""
    workdir, overrides = prepared
    real = Path.read_bytes
    arguments = ["--config", "files", *(f"--config.{o}" for o in overrides)]
    for name in (
        *("config.json", "data/manifest.json", "data/store.json", "vocabulary/vocabulary.json"),
    ):

        def refuse(path: Path, refused: Path = workdir / name) -> bytes:
            if path == refused:
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(Path, "read_bytes", refuse)
        done = run("prepare", *arguments, "--workdir", workdir)
        assert done.status == 1
        assert done.last.endswith(f"{workdir / name}: cannot be read: Permission denied")


def test_what_the_machine_refuses_is_explained_and_a_bug_is_not() -> None:
    assert explained(OSError(errno.ENOSPC, "No space left on device"), "train") == (
        "No space left on device; make room; the same command goes on with what is complete"
    )
    assert "a/b: Permission denied; choose another place" in str(
        explained(PermissionError(errno.EACCES, "Permission denied", "a/b"), "train")
    )
    memory = MemoryError("Unable to allocate")
    for command, advice in (
        ("train", "lower data.batch.tokens"),
        ("prepare", "set data.vocabulary.sample to fewer pairs, or data.filter.duplicates to"),
        ("translate", "lower --batch-tokens or --beam-size"),
        ("evaluate", "lower --batch-tokens or --beam-size"),
        ("score", "lower --batch-tokens"),
        ("serve", "lower --beam-size"),
    ):
        told = str(explained(memory, command))
        assert told.startswith("this machine has not enough memory: Unable") and advice in told
        assert ("training." in told) == (command == "train")
    for command in ("compare", "export", "average", "plan"):  # where none of these helps
        told = str(explained(memory, command))
        assert told == "this machine has not enough memory: Unable to allocate"
    device = RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate\nmore")
    assert "the device has not enough memory: RESOURCE_EXHAUSTED" in str(explained(device, "train"))
    for bug in (KeyError("x"), FileNotFoundError(errno.ENOENT, "No such file", "x"), OSError("x")):
        assert explained(bug, "train") is None


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_streams_are_no_bug(closed: str) -> None:
    command = f'"{sys.executable}" -m flaxformer_mt.cli.main config --config quickstart {closed}'
    done = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0 and b"Traceback" not in done.stderr
