"""`files` without a variant: sizes by the corpus, in every command that takes a config."""

from unittest import mock

import pytest

from flaxformer_mt.api import config_of, speed, trial
from flaxformer_mt.api.settings import continued, settled
from flaxformer_mt.api.speed import Pacing
from flaxformer_mt.cli.train import _next_commands
from flaxformer_mt.config.sizes import TextSize, validate_every
from flaxformer_mt.rundir.layout import RunDirectory, read_record
from tests.cli.conftest import settings
from tests.cli.test_bad_runs import Reached
from tests.decoding.runs import make_run

MESSAGE = (
    "sizes for 2,541 tokens (120 pairs, 1,070 different words): 2 + 2 layers of width 128, 500 "
    "types, 1,000 steps of 2,048 tokens"
)


@pytest.fixture
def arguments(corpus):
    """Arguments for the config `files` on `corpus`, which has 120 training pairs."""
    text = [word for word in settings(corpus) if ".data.train" in word or ".data.valid" in word]
    return ["--config", "files", f"--config.data.folder={corpus}", *text]


def test_every_command_says_the_sizes_for_its_text(
    run, arguments, tmp_path, monkeypatch, capfdbinary
):
    done = run("config", *arguments)
    assert done.errors.strip() == MESSAGE and "model.d_model = 128\n" in done.output

    build = mock.Mock(side_effect=Reached)
    monkeypatch.setattr(trial, "build", build)
    with pytest.raises(Reached):
        run("train", "--dry-run", *arguments, "--workdir", tmp_path / "tried")
    assert MESSAGE in capfdbinary.readouterr().err.decode()
    assert build.call_args[0][0].training.steps == 1000


def test_a_run_records_the_sizes_for_its_text(run, arguments, corpus, tmp_path):
    """They don't change with the text."""
    assert MESSAGE in run("prepare", *arguments, "--workdir", tmp_path / "run").errors
    begun = RunDirectory(tmp_path / "run")
    record = read_record(begun).config
    assert record["sizes"] == "given" and record["training"]["steps"] == 1000
    (corpus / "train.en").unlink()
    overrides = [argument.removeprefix("--config.") for argument in arguments[2:]]
    config, changed = continued(begun, settled(begun, "files", overrides))
    assert not changed and config.model.d_model == 128


def test_sizes_are_explained(run, arguments):
    done = run("config", *arguments, "--config.model.d_ff=64", "--explain")
    lines = done.output.splitlines()
    assert any(line.startswith("model.d_model = 128: 128 at 270,000 tokens") for line in lines)
    assert "model.d_ff = 64: set by the config's file or an override" in lines
    assert MESSAGE in done.errors and "little text: " in done.errors
    assert "no size depends on the machine" in done.errors
    of_group = run("config", *arguments, "--explain", "model").output.splitlines()
    assert of_group and {line.partition(".")[0] for line in of_group} == {"model"}
    refused = run("config", "--config", "quickstart", "--explain")
    assert "leaves no size to the text" in refused.errors


def test_minutes_are_turned_into_steps_of_this_machine(run, arguments, tmp_path, monkeypatch):
    """Which the run records, so that it isn't measured again."""
    pacing = Pacing(step=0.5, compiling=3, validation=1, spent=5, text=TextSize(2541))
    monkeypatch.setattr(speed, "measured_pacing", lambda *arguments: pacing)
    arguments = [*arguments, "--config.training.minutes=10"]
    done = run("config", *arguments, "--explain", "training")
    assert pacing.describe(10) in done.errors
    most = round(1.5 * pacing.steps_in(10))  # the machine may turn out to be faster
    assert f"training.steps = {most}: 1.5 times the estimate; training.min" in done.output
    assert f"about {pacing.steps_in(10):,} steps of" in done.errors

    run("prepare", *arguments, "--workdir", tmp_path / "run")
    begun = RunDirectory(tmp_path / "run")
    monkeypatch.setattr(speed, "measured_pacing", None)
    overrides = [argument.removeprefix("--config.") for argument in arguments[2:]]
    training = settled(begun, "files", overrides).training
    assert (training.steps, training.minutes) == (most, 10)
    assert training.validate_every == validate_every(pacing.steps_in(10))


def test_what_the_user_sets_beside_minutes_stays_and_takes_its_time(run, arguments, monkeypatch):
    def measured(config, text, valid, given):
        return Pacing(step=0.5, compiling=3, validation=1, spent=5, text=text, given=given)

    monkeypatch.setattr(speed, "measured_pacing", measured)
    arguments = [*arguments, "--config.training.minutes=10"]
    own = {"training.validate_every": 20, "training.save_every": 4, "data.batch.max_shapes": 9}
    steps = []
    for changes in ({}, own):
        output = run(
            "config", *arguments, *(f"--config.{key}={own[key]}" for key in changes)
        ).output
        lines = dict(line.split(" = ") for line in output.splitlines())
        assert changes.items() <= {key: int(lines[key]) for key in changes}.items()
        steps.append(int(lines["training.steps"]))
    assert steps[1] < 0.8 * steps[0]


def test_sizes_for_text_that_is_not_counted_are_assumed(run, arguments, corpus):
    (corpus / "train.en").write_text("a\n" * 120)
    assert "sizes for 6,000,000 tokens, since no corpus" in run("config", *arguments[:2]).errors
    far = {"kind": "hf", "path": "hf://datasets/a/b/*.parquet", "src": "en", "tgt": "de"}
    mixed = [*arguments, *(f"--config.data.train.far.{key}={value}" for key, value in far.items())]
    message = "sizes for 6,000,000 tokens; data.train.far isn't counted: 4 + 4 layers"
    assert message in run("config", *mixed).errors


@pytest.mark.parametrize(
    ("steps", "average"), [([1], []), ([1, 2], [" --last 2"]), ([1, 2, 3, 4, 5], [""])]
)
def test_the_average_that_a_finished_run_offers_can_be_made(tmp_path, steps, average):
    """With fewer checkpoints than `training.keep_for_average`, `average` alone is an error."""
    trained = make_run(tmp_path / "run", dict.fromkeys(steps))
    config = config_of(trained)
    offered = [line for line in _next_commands(trained, "run", config) if " average " in line]
    commands = [line.partition("--workdir run")[2] for line in offered if "--workdir" in line]
    assert commands == average


def test_shares_of_the_steps_are_of_the_steps_that_hold(run, arguments):
    done = run("config", *arguments, "--config.training.steps=5000", "--explain", "training")
    assert "training.save_every = 84: 1.7% of the steps (paper: 1.5%)\n" in done.output
    own = ("--config.training.validate_every=100",)
    done = run("config", *arguments, *own, "--explain", "training")
    assert "training.validate_every = 100: set by the config's file or an override\n" in done.output
    assert "training.patience = 5: validations, together 50% of the steps\n" in done.output
