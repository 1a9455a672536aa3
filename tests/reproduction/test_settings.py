"""What a call asks for, in results, commands and configs; the paper's text as files or of TFDS."""

from __future__ import annotations

import dataclasses
import json
import shlex

import pytest

from flaxformer_mt.cli.arguments import take_overrides
from flaxformer_mt.config import flatten, load_config
from flaxformer_mt.data.corpus.tfds_sets import data_dir_of
from flaxformer_mt.reproduction.experiment import again, resolve
from flaxformer_mt.reproduction.paper import RowError, row_of, rows_of
from flaxformer_mt.reproduction.settings import Settings
from tests.reproduction.made_up import TOY, experiment, result

TFDS = Settings(text="tfds")


def test_what_cannot_stand_in_a_result_is_refused():
    for settings, message in (
        ({"scale": 0.0}, "must lie above 0"),
        ({"scale": 1.5}, "at most be 1"),
        ({"overrides": ("data.folder=x",)}, "say --folder"),
        ({"overrides": ("training.seed=2",)}, "say --seeds"),
        ({"overrides": ("data.valid.src=/srv/valid.en",)}, "a path of one machine"),
        ({"corpus": {"train": ("/srv/train.en", "train.de")}}, "a path of one machine"),
        ({"corpus": {"name": "Multi30k"}}, "small letters"),
        ({"corpus": {"name": "paper"}}, "--corpus paper: .* the paper's own text"),
        ({"corpus": {"name": "paper_full"}}, "--corpus paper_full: .* the paper's own text"),
        ({"text": "tfds", "corpus": {}}, "is the paper's text"),
    ):
        with pytest.raises(RowError, match=message):
            if "corpus" in settings:
                settings = settings | {"corpus": dataclasses.replace(TOY, **settings["corpus"])}
            experiment(**settings)
    assert dataclasses.replace(TOY, name="papers").name == "papers"
    details = result(experiment())["details"]
    with pytest.raises(RowError, match="no text 'tar'"):
        again({**details, "settings": details["settings"].replace("}", ', "text": "tar"}')})


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


@pytest.mark.parametrize("row", rows_of("table2"), ids=lambda row: row.name)
def test_table_2_is_the_config_of_that_name(row):
    ours = flatten(resolve(row, TFDS).config)
    theirs = flatten(load_config(f"{row.spec}_tfds"))
    differing = {key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)}
    assert differing <= {"name", "training.validate_every"}


@pytest.mark.parametrize("row", rows_of("table3", ["base", "big"]), ids=lambda row: row.name)
def test_table_3_reads_the_same_set_and_is_the_paper_s(row):
    found, files = resolve(row, TFDS), resolve(row, Settings())
    data = found.config.data
    assert [corpus.path for corpus in data.train] == ["wmt_t2t_translate/de-en"]
    assert (data.valid.kind, data.valid.split) == ("tfds", "validation")
    assert data.test[0].split == "validation"
    assert found.config.model == files.config.model
    assert found.config.training == files.config.training
    assert found.is_the_paper_s and found.variant == ""
    assert found.name != files.name and found.digest != files.digest
    assert found.run_name != files.run_name


def test_a_result_tells_in_which_form_the_text_was():
    found = resolve(row_of("table3/a_h1"), Settings(text="tfds", scale=0.1, folder="gs://b/sets"))
    assert again(found.details()).digest == found.digest
    assert "--scale 0.1 --seeds 1 --text tfds --folder FOLDER" in found.command
    assert "text" not in json.loads(Settings().to_json())  # as before there was the setting


@pytest.mark.parametrize(
    ("folder", "place"),
    [("sets", "HERE/sets"), ("gs://b/sets", "gs://b/sets"), ("/srv/sets", "/srv/sets")],
)
def test_a_folder_is_that_of_the_prepared_sets(folder, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = resolve(row_of("table2/en_fr_big"), Settings(text="tfds", folder=folder))
    data = found.config.data
    corpora = (*data.train, data.valid, *data.test)
    places = {str(data_dir_of(corpus, data.folder)) for corpus in corpora}
    assert places == {place.replace("HERE", str(tmp_path))}
    assert found.digest == resolve(row_of("table2/en_fr_big"), TFDS).digest


def test_tfds_has_no_trees():
    with pytest.raises(RowError, match="no such text as its data.train.*leave --text out"):
        resolve(row_of("table4/wsj_only"), TFDS)
