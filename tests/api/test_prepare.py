"""`fm.prepare`: a run's text prepared from Python, and what the command then does with it."""

import json

import pytest

import flaxformer_mt as fm
from flaxformer_mt.config import ConfigError
from flaxformer_mt.data.plan import PlanError
from tests.cli.conftest import run_captured

SETTINGS = {
    "data.train.grammar.size": 60,
    "data.valid.size": 10,
    "data.vocabulary.size": 200,
    "data.batch.tokens": 1024,
}


def test_text_is_prepared_as_the_command_prepares_it(tmp_path):
    preparation = fm.prepare(fm.load_config("quickstart", SETTINGS), tmp_path / "run")
    assert len(preparation.store.train) == 60 and len(preparation.store.valid) == 10
    shapes, *batches = preparation.inspect()
    assert "rows" in shapes and batches

    flags = [f"--config.{key}={setting}" for key, setting in SETTINGS.items()]
    command = ["prepare", "--config", "quickstart", *flags, "--workdir", tmp_path / "other"]
    done = run_captured(*command, "--inspect")
    assert done.status == 0, done.errors
    assert done.output == "\n\n".join([preparation.describe(), shapes, *batches]) + "\n"


def test_a_run_takes_over_settings_that_may_change(tmp_path):
    fm.prepare(fm.load_config("quickstart", SETTINGS), tmp_path / "run", command=["first"])
    config = fm.load_config(tmp_path / "run", {"training.steps": 7})
    assert fm.prepare(config, tmp_path / "run").config.training.steps == 7
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert record["config"]["training"]["steps"] == 7
    assert record["starts"][0]["command_line"] == ["first"] and len(record["starts"]) == 2


def test_what_cannot_be_prepared_is_refused(tmp_path):
    config = fm.load_config("quickstart", SETTINGS)
    with pytest.raises(ConfigError, match="leave out `chips`"):
        fm.prepare(config, tmp_path / "run", engine=fm.Ray(chips=2))
    assert not (tmp_path / "run").exists()
    narrow = fm.load_config("quickstart", {**SETTINGS, "data.batch.tokens": 8})
    with pytest.raises(PlanError, match="data.valid"):
        fm.prepare(narrow, tmp_path / "run").check_validation()
