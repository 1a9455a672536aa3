"""What a call asks for: what cannot stand in a result, and the command that asks for it again."""

from __future__ import annotations

import dataclasses
import shlex

import pytest

from flaxformer_mt.cli.arguments import take_overrides
from flaxformer_mt.reproduction.paper import RowError
from flaxformer_mt.reproduction.settings import Corpus, Settings
from tests.reproduction.made_up import TOY, experiment


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scale": 0.0}, "must lie above 0"),
        ({"scale": 1.5}, "at most be 1"),
        ({"overrides": ("data.folder=x",)}, "say --folder"),
        ({"overrides": ("training.seed=2",)}, "say --seeds"),
        ({"overrides": ("data.valid.src=/srv/valid.en",)}, "a path of one machine"),
    ],
)
def test_settings_that_cannot_stand_in_a_result_are_refused(settings, message):
    with pytest.raises(RowError, match=message):
        Settings(**settings)


def test_so_are_corpora():
    with pytest.raises(RowError, match="small letters"):
        Corpus(name="Multi30k", train=("a", "b"), valid=("c", "d"))
    for name in ("paper", "paper_full"):
        with pytest.raises(RowError, match=f"--corpus {name}: .* the paper's own text"):
            dataclasses.replace(TOY, name=name)
    assert dataclasses.replace(TOY, name="papers").name == "papers"
    with pytest.raises(RowError, match="a path of one machine"):
        experiment(corpus=dataclasses.replace(TOY, train=("/srv/train.en", "/srv/train.de")))


def test_a_command_names_rows_seeds_and_settings():
    settings = Settings(
        scale=0.5,
        seed=2,
        folder="here",
        corpus=dataclasses.replace(TOY, test=("t.en", "t.de")),
        overrides=("name=--only base --seeds 2",),
    )
    words = shlex.split(settings.command("table3", only=["base", "c_N2"]))
    assert words == [
        *("flaxformer-mt", "reproduce", "table3", "--only", "base", "c_N2"),
        *("--scale", "0.5", "--seeds", "2", "--folder", "FOLDER"),
        *("--corpus", "toy", "--train", "train.en", "train.de"),
        *("--valid", "valid.en", "valid.de", "--test", "t.en", "t.de"),
        "--config.name=--only base --seeds 2",
    ]
    # Of a whole table: the overrides are what they were, whatever they look like.
    words = shlex.split(settings.command("table3", seeds=[1, 2]))
    assert words[3:9] == ["--scale", "0.5", "--seeds", "1", "2", "--folder"]
    assert take_overrides(words)[1] == ["name=--only base --seeds 2"]
