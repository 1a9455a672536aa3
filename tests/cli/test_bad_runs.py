"""Run directories that lack something: told before anything is trained or translated.

Beginning with another run's weights: the first process decides for all.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.api import starting, training
from flaxformer_mt.api.settings import created
from flaxformer_mt.api.starting import StartError
from flaxformer_mt.cli.main import user_message
from flaxformer_mt.cli.train import train_run
from flaxformer_mt.config import ConfigError, ExperimentConfig, freeze, read_config, to_dict
from flaxformer_mt.config.schema import VocabularyConfig
from flaxformer_mt.data.vocabulary import train_pair
from flaxformer_mt.grammar.text import pairs
from flaxformer_mt.parallel.processes import Processes
from flaxformer_mt.rundir import RunDirectoryError, layout
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.lock import locked
from flaxformer_mt.rundir.weights import load_params
from tests.cli.conftest import settings


class Reached(Exception):
    """The point at which a model would be built."""


def reached(*_: object, **__: object) -> None:
    raise Reached


@pytest.fixture
def prepared(run, corpus, tmp_path, monkeypatch):
    """A prepared run and its overrides; training ends where a model would be built."""
    monkeypatch.setattr(training, "build", reached)
    arguments = settings(corpus)
    parts = tmp_path / "run" / "data.parts"
    parts.mkdir(parents=True)  # of a cluster that was lost
    assert run("prepare", *arguments, "--workdir", tmp_path / "run").status == 0
    assert not parts.exists()
    return tmp_path / "run", [a.removeprefix("--config.") for a in arguments[2:]]


def train(workdir: Path, overrides: list[str]) -> None:
    train_run(str(workdir), "files:small", overrides, ["train"])


def test_without_a_checkpoint_any_setting_may_change(run, corpus, prepared):
    workdir, overrides = prepared
    with pytest.raises(Reached):
        train(workdir, [*overrides, "model.d_model=64"])
    assert layout.read_record(layout.open_run(workdir)).config["model"]["d_model"] == 64
    (workdir / "checkpoints" / "5").mkdir(parents=True)
    with pytest.raises(ConfigError, match="'model.d_model' was 64, is now 32"):
        train(workdir, [*overrides, "model.d_model=32"])
    done = run("prepare", *settings(corpus, model__d_model=32), "--workdir", workdir)
    assert done.status == 2 and "'model.d_model' was 64, is now 32" in done.last


@pytest.fixture
def finished(run, corpus, prepared):
    """A prepared run with the status of one that has ended after 5 steps."""
    workdir, _ = prepared
    layout.write_status(layout.open_run(workdir), layout.Status(state="finished", step=5))
    assert run("prepare", *settings(corpus), "--workdir", workdir).status == 0
    return workdir


def test_a_finished_run_says_what_to_do_with_it(run, corpus, finished):
    errors = run("train", *settings(corpus), "--workdir", finished).errors
    assert "nothing to do" in errors
    assert f"flaxformer-mt translate --workdir {finished} < INPUT > OUTPUT" in errors


def test_a_finished_run_is_checked_and_takes_settings_that_decide_nothing(run, finished):
    done = run("train", "--workdir", finished, "--config.data.tgt_lang=nl")
    assert done.status == 2 and "'data.train.mine.tgt' = 'train.de' names 'de'" in done.last
    added = ("--config.data.test.new.kind=synthetic", "--config.data.test.new.size=9")
    done = run("train", "--workdir", finished, *added)
    assert done.status == 0 and "data.test.new.size: was None, now 9" in done.errors
    assert "nothing to do" in done.errors
    assert layout.read_record(layout.open_run(finished)).config["data"]["test"]["new"]["size"] == 9


def test_a_finished_run_that_prepare_was_given_more_steps_for_is_trained(
    run, corpus, prepared, finished
):
    _, overrides = prepared
    arguments = [*settings(corpus), "--workdir", finished]
    assert run("prepare", *arguments, "--config.training.steps=8").status == 0
    with pytest.raises(Reached):
        train(finished, [*overrides, "training.steps=8"])


def test_a_finished_run_whose_next_start_is_killed_goes_on_at_the_one_after(prepared, monkeypatch):
    """Right after its settings are recorded: that it is to go on is then another file's matter."""
    workdir, overrides = prepared
    overrides = [*overrides, "training.steps=8"]
    layout.write_status(layout.open_run(workdir), layout.Status(state="finished", step=5))

    record_start = layout.record_start

    def record_and_be_killed(*arguments: Any, **more: Any) -> None:
        record_start(*arguments, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(layout, "record_start", record_and_be_killed)
        train(workdir, overrides)
    with pytest.raises(Reached):
        train(workdir, overrides)


def test_a_trained_run_gets_no_new_vocabulary(prepared):
    workdir, overrides = prepared
    (workdir / "checkpoints" / "5").mkdir(parents=True)
    shutil.rmtree(workdir / "vocabulary")
    shutil.rmtree(workdir / "data")
    with pytest.raises(RunDirectoryError, match="vocabulary: missing, but the checkpoints need it"):
        train(workdir, overrides)
    assert not (workdir / "vocabulary").exists()


def test_a_damaged_average_keeps_nothing_from_training(prepared):
    workdir, overrides = prepared
    (workdir / "checkpoints" / "average" / "meta").mkdir(parents=True)
    (workdir / "checkpoints" / "average" / "meta" / "metadata").write_text("{}")
    with pytest.raises(Reached):
        train(workdir, overrides)


def test_weights_to_start_from_are_looked_for_first(prepared, tmp_path):
    workdir, overrides = prepared
    new_run = str(tmp_path / "other")
    with pytest.raises(StartError, match=f"{workdir}: has no checkpoint to start from"):
        train_run(new_run, "files:small", overrides, ["train"], str(workdir))
    with pytest.raises(StartError, match="is this run itself"):
        train_run(new_run, "files:small", overrides, ["train"], new_run)
    assert not (tmp_path / "other").exists()


def test_weights_of_other_sizes_are_refused_before_text_is_read(workdir, tmp_path):
    """The text isn't even there."""
    new_run = tmp_path / "other"
    text = ["data.train=absent.en,absent.de", "data.valid=absent.en,absent.de"]
    wide = [*text, "model.d_model=512", "model.positions=learned"]
    message = "not fit this model: 'model.encoder_layers' = 1 there, 4 here; .*'model.d_ff' = 16"
    with pytest.raises(StartError, match=message):
        train_run(str(new_run), "files:small", wide, ["train"], str(workdir))
    with pytest.raises(StartError, match="'model.d_ff' = .* there, 5 here: set them as there"):
        train_run(str(new_run), None, ["model.d_ff=5"], ["train"], str(workdir))
    with pytest.raises(StartError, match="'model.scan_layers' = False there, True here"):
        train_run(str(new_run), None, ["model.scan_layers=true"], ["train"], str(workdir))
    assert not new_run.exists()


def test_moments_that_do_not_fit_are_refused_before_text_is_read(workdir, tmp_path):
    new_run = str(tmp_path / "other")
    kept = ["training.keep_moments=true"]
    with pytest.raises(StartError, match="'training.keep_moments' = true needs --init-from"):
        train_run(new_run, "files:small", kept, ["train"])
    changes = {
        "training.optimizer.kind=lion": "'training.optimizer.kind' is adam there, lion here",
        "training.optimizer.clip_norm=1": "'training.optimizer.clip_norm' is off there, on here",
        "training.freeze=embedding/*": r"'training.freeze' is \[\] there, \['embedding/\*'\] here",
    }
    for change, problem in changes.items():
        with pytest.raises(StartError, match=f"do not fit this optimizer: {problem}: set them"):
            train_run(new_run, None, [*kept, change], ["train"], str(workdir))
    assert not (tmp_path / "other").exists()
    adapted = freeze({"training": {"adapters": {"rank": 2}}}, "a test")
    with pytest.raises(StartError, match="its moments are those of its adapters: leave out"):
        starting.check_same_moments(adapted, ExperimentConfig(), "there")


def test_an_imported_run_has_no_moments_to_keep(workdir, tmp_path):
    imported = tmp_path / "imported"
    shutil.copytree(workdir, imported)
    shutil.rmtree(imported / "checkpoints")
    weights = load_params(layout.RunDirectory(workdir), "latest")
    with Checkpoints(imported / "checkpoints", ExperimentConfig().training) as checkpoints:
        checkpoints.save(Snapshot(step=0, params=weights, opt_state={}, position={}))
    with pytest.raises(StartError, match=r"checkpoints/0: has no moments, as after an import"):
        train_run(
            str(tmp_path / "other"), None, ["training.keep_moments=true"], ["train"], str(imported)
        )


def test_what_a_run_is_says_the_one_that_holds_it(run, corpus, tmp_path):
    """Of two that begin it with different settings, the one that comes second changes nothing."""
    begun = layout.RunDirectory(tmp_path / "run")
    layout.make_folder(begun)
    with locked(begun, "testing"):
        for command in ("train", "prepare"):
            done = run(command, *settings(corpus), "--workdir", begun)
            assert done.status == 1 and f"process {os.getpid()} on" in done.last
            assert "is testing; wait for it" in done.last
            assert not begun.config_file.exists()


def test_what_has_become_a_run_meanwhile_is_gone_on_with(run, corpus, tmp_path, monkeypatch):
    """Another began it and let go of it between the look and the lock."""
    begun = layout.RunDirectory(tmp_path / "run")

    @contextlib.contextmanager
    def locked_late(*arguments: Any) -> Iterator[Any]:
        overrides = [a.removeprefix("--config.") for a in settings(corpus, model__d_model=64)[2:]]
        layout.create(begun.path, to_dict(read_config("files:small", overrides)), ["theirs"])
        with locked(*arguments) as holding:
            yield holding

    monkeypatch.setattr(training, "locked", locked_late)
    monkeypatch.setattr(training, "build", reached)
    overrides = [a.removeprefix("--config.") for a in settings(corpus)[2:]]
    with pytest.raises(Reached):
        train(begun.path, overrides)
    record = layout.read_record(begun)
    assert [start.command_line for start in record.starts] == [("theirs",), ("train",)]
    assert record.config == to_dict(created(read_config("files:small", overrides)))


def test_what_the_machine_refuses_is_explained_and_a_bug_is_not():
    memory = MemoryError("x")
    for error, command, message in (
        (OSError(errno.ENOSPC, "No space left"), "train", "No space left; free some and repeat"),
        (PermissionError(errno.EACCES, "Denied", "a/b"), "train", "a/b: Denied; choose another"),
        (memory, "train", "this machine ran out of memory: x; lower data.batch.tokens"),
        (memory, "translate", "memory: x; lower --batch-tokens or --beam-size"),
        (RuntimeError("RESOURCE_EXHAUSTED: y\nmore"), "serve", "the device ran out of memory"),
    ):
        assert message in str(user_message(error, command))
    # Where no setting helps, none is named.
    assert user_message(memory, "compare") == "this machine ran out of memory: x"
    for bug in (KeyError("x"), FileNotFoundError(errno.ENOENT, "No such file", "x"), OSError("x")):
        assert user_message(bug, "train") is None


class Second(Processes):
    """The second of two processes, which is given what the first one found."""

    def __init__(self, found: Any) -> None:
        super().__init__(number=1, count=2)
        self.found = found

    def first(self, action: Callable[[], object]) -> Any:
        return self.found


def test_the_first_process_chooses_for_all_and_each_reads_when_it_needs_them(tmp_path, monkeypatch):
    """The other run may be training: a moment later another checkpoint is its best."""
    read: list[object] = []

    def load_params(run: layout.RunDirectory, which: object) -> dict[str, jax.Array]:
        read.append(which)
        return {"w": jnp.ones(2)}

    source = layout.create(tmp_path / "source", {"name": "test"}, ["train"])
    vocabularies = train_pair(list(pairs("train", 60)), VocabularyConfig(size=80, shared=False))
    vocabularies.save(source.vocabulary)
    monkeypatch.setattr(starting, "load_params", load_params)
    monkeypatch.setattr(starting, "check_same_form", lambda *_: None)
    program: Any = SimpleNamespace(abstract_weights={}, config=ExperimentConfig())
    weights = starting.weights_of(source, vocabularies, program, Second(3))
    assert read == []
    assert isinstance(weights()["w"], np.ndarray), "no device holds them for all of training"
    assert read == [3]


def test_the_first_process_says_whether_a_run_has_begun(tmp_path):
    """Another host may see its folder as it was: it must not go another way than the others."""
    run = layout.RunDirectory(tmp_path / "run")
    assert starting.run_to_start_from(run, "no such run", Second(True)) is None
