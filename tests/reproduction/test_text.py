"""The paper's text from TensorFlow Datasets: the same experiment, and no other one's result."""

from __future__ import annotations

import json

import pytest

from flaxformer_mt.config import flatten, load_config
from flaxformer_mt.data.corpus.tfds_sets import data_dir_of
from flaxformer_mt.reproduction.experiment import again, resolve
from flaxformer_mt.reproduction.paper import RowError, row_of, rows_of
from flaxformer_mt.reproduction.settings import Settings
from tests.reproduction.made_up import TOY, experiment, result

TFDS = Settings(text="tfds")


@pytest.mark.parametrize("row", rows_of("table2"), ids=lambda row: row.name)
def test_table_2_is_the_config_of_that_name(row):
    ours = flatten(resolve(row, TFDS).config)
    theirs = flatten(load_config(f"{row.spec}_tfds"))
    differing = {key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)}
    assert differing <= {"name", "training.validate_every"}


@pytest.mark.parametrize("row", rows_of("table3"), ids=lambda row: row.name)
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


def test_a_result_tells_its_experiment():
    found = resolve(row_of("table3/a_h1"), Settings(text="tfds", scale=0.1, folder="gs://b/sets"))
    assert again(found.details()).digest == found.digest
    assert "--scale 0.1 --seeds 1 --text tfds --folder FOLDER" in found.command
    assert "text" not in json.loads(Settings().to_json())  # as before there was the setting


@pytest.mark.parametrize(
    ("folder", "place"),
    [("sets", "HERE/sets"), ("gs://b/sets", "gs://b/sets"), ("/srv/sets", "/srv/sets")],
)
def test_the_folder_is_that_of_the_prepared_sets(folder, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = resolve(row_of("table2/en_fr_big"), Settings(text="tfds", folder=folder))
    data = found.config.data
    corpora = (*data.train, data.valid, *data.test)
    places = {str(data_dir_of(corpus, data.folder)) for corpus in corpora}
    assert places == {place.replace("HERE", str(tmp_path))}
    assert found.digest == resolve(row_of("table2/en_fr_big"), TFDS).digest


def test_a_place_of_one_set_is_kept():
    settings = Settings(text="tfds", folder="sets", overrides=("data.valid.data_dir=other",))
    data = resolve(row_of("table2/en_de_base"), settings).config.data
    assert data.valid.data_dir == "other" and data.train[0].data_dir.endswith("/sets")
    files = resolve(row_of("table2/en_fr_big"), Settings(folder="here")).config.data
    assert (files.folder, files.train[0].data_dir) == ("here", "")


def test_overrides_are_made_last():
    override = "data.train.wmt14.split=train[:10%]"
    found = resolve(row_of("table3/base"), Settings(text="tfds", overrides=(override,)))
    assert found.config.data.train[0].split == "train[:10%]" and not found.is_the_paper_s


@pytest.mark.parametrize("label", ["table4/wsj_only", "table4/semi_supervised"])
def test_trees_are_not_there(label):
    with pytest.raises(RowError, match="no such text as its data.train.*leave --text out"):
        resolve(row_of(label), TFDS)


def test_other_text_has_no_such_form():
    with pytest.raises(RowError, match="is the paper's text"):
        experiment(text="tfds", corpus=TOY)
    details = result(experiment())["details"]
    with pytest.raises(RowError, match="no text 'tar'"):
        again({**details, "settings": details["settings"].replace("}", ', "text": "tar"}')})
