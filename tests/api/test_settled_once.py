"""How often a command reads and checks the settings of a run."""

import importlib
from collections import Counter

import pytest

import flaxformer_mt as fm
from flaxformer_mt.api import training
from flaxformer_mt.cli import train
from flaxformer_mt.config import read_config, to_dict
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.layout import RunDirectory, Status, create, write_status
from tests.decoding.runs import make_run

SMALL = ["data.train.made.kind=synthetic", "data.train.made.size=9"]
SMALL += ["data.valid.kind=synthetic", "data.valid.size=9"]
FILE = """
from flaxformer_mt.config import corpus, default_config

def get_config(variant=""):
    with open({log!r}, "a") as log:
        log.write("x")
    config = default_config()
    config.data.train.made = corpus(kind="synthetic", size=9)
    config.data.valid = corpus(kind="synthetic", split="valid", size=9)
    config.sizes = variant
    return config
"""


@pytest.fixture
def counts(monkeypatch) -> Counter[str]:
    """Calls of `freeze` and reads of a run's config.json, from here on."""
    counted: Counter[str] = Counter()
    freezing = importlib.import_module("flaxformer_mt.config.freeze")
    inconsistencies, document = freezing.inconsistencies, layout.document

    def checked(*arguments):
        counted["freezes"] += 1
        return inconsistencies(*arguments)

    def opened(path, advice):
        counted[f"reads of {path.name}"] += 1
        return document(path, advice)

    monkeypatch.setattr(freezing, "inconsistencies", checked)
    monkeypatch.setattr(layout, "document", opened)
    return counted


def started(*arguments: object) -> int:
    return train.main([str(argument) for argument in arguments], "train", "")


@pytest.fixture
def finished(tmp_path) -> RunDirectory:
    run = create(tmp_path / "run", to_dict(read_config("quickstart", SMALL)), ["train"])
    write_status(run, Status(state="finished", step=7, reason="all steps are done"))
    return run


def test_a_finished_run_is_read_once_for_its_settings_and_once_under_its_lock(finished, counts):
    assert started("--workdir", finished) == 0
    assert counts["reads of config.json"] == 2 and counts["freezes"] == 2


@pytest.mark.parametrize(("sizes", "freezes"), [("given", 2), ("corpus", 3)])
def test_a_config_file_is_run_once(tmp_path, monkeypatch, counts, sizes, freezes):
    """Its settings are checked again as they are recorded; languages before text is counted."""
    log = tmp_path / "log"
    (tmp_path / "mine.py").write_text(FILE.format(log=str(log)))
    ended = Status(state="finished", step=7, reason="all steps are done")
    monkeypatch.setattr(training._Session, "train", lambda session: ended)
    config = f"{tmp_path / 'mine.py'}:{sizes}"
    assert started("--workdir", tmp_path / "run", "--config", config) == 0
    assert log.read_text() == "x" and counts["freezes"] == freezes
    assert not counts["reads of config.json"]


def test_evaluating_reads_the_settings_once_and_its_translator_once(tmp_path, counts):
    run = make_run(tmp_path / "run", {1: None})
    counts.clear()
    fm.evaluate(run, {"mine": (["a b c"], ["a b c"])})
    assert counts["reads of config.json"] == counts["freezes"] == 2
