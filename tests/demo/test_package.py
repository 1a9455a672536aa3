"""The model that comes with the package: its files, and the run directory that is made of them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import flaxformer_mt as fm
from flaxformer_mt.config import read_config, to_dict
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.demo import package
from flaxformer_mt.rundir import WorkdirError
from flaxformer_mt.rundir.checkpoints import Checkpoints
from flaxformer_mt.rundir.digests import flatten_paths
from flaxformer_mt.rundir.layout import RunDirectory, Status, create, write_status
from flaxformer_mt.rundir.weights import load_params

FOLDER = Path(package.__file__).parent
ROOT = FOLDER.parent.parent
LARGEST = 6_000_000  # bytes of all files, which every installation carries


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDirectory:
    return fm.demo_run(tmp_path_factory.mktemp("demo") / "run")


def test_it_translates(run):
    translation = fm.Translator.load(run).translate("I have lost my keys.")
    assert translation.text == "Ich habe meine Schlüssel verloren."


def test_a_line_of_two_sentences_is_translated_one_by_one(run):
    translator = fm.Translator.load(run)
    translation = translator.translate("I have lost my keys. The old dog sleeps.")
    assert translation.text == "Ich habe meine Schlüssel verloren. Der alte Hund schläft."


def test_a_run_that_is_there_is_used_again(run):
    before = run.config_file.stat().st_mtime_ns
    assert fm.demo_run(run.path) == run and run.config_file.stat().st_mtime_ns == before


def test_another_run_is_left_alone(tmp_path):
    other = create(tmp_path / "run", to_dict(read_config("quickstart", [])), ["train"])
    write_status(other, Status(state="finished", step=3, reason="all 3 steps done"))
    with pytest.raises(WorkdirError, match="run: holds another run; choose another directory"):
        fm.demo_run(other.path)
    assert {path.name for path in other.path.iterdir()} == {"config.json", "status.json"}


def test_other_files_are_left_alone(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(WorkdirError, match="is not empty; choose another directory"):
        fm.demo_run(tmp_path)
    with pytest.raises(WorkdirError, match="notes: is a file; choose a directory"):
        fm.demo_run(tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "mine"


def test_a_bucket_is_refused():
    with pytest.raises(WorkdirError, match="gs://bucket/run: is not a local folder"):
        fm.demo_run("gs://bucket/run")


def test_nothing_is_left_of_a_run_that_could_not_be_made(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.raises(WorkdirError, match="run: cannot be written: No space left on device"):
        fm.demo_run(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_parameters_are_kept_in_bfloat16(run, tmp_path):
    vocabularies = Vocabularies.load(run.vocabulary)
    params = {"layer": {"kernel": np.linspace(-3, 3, 1001, dtype=np.float32).reshape(7, 143)}}
    text = fm.Translator.load(run).training_text
    package.write(tmp_path, {"name": "any"}, vocabularies, params, text)

    read = package.weights((tmp_path / "weights.npz").read_bytes())
    assert read["layer/kernel"].dtype == np.float32 and list(read) == ["layer/kernel"]
    # A significand of eight bits, rounded to the nearest.
    np.testing.assert_allclose(read["layer/kernel"], params["layer"]["kernel"], rtol=2**-8)
    assert (tmp_path / "vocabulary.model").read_bytes() == vocabularies.src.model
    assert json.loads((tmp_path / "training_text.json").read_text())["together"] == text.together


def test_sides_with_their_own_vocabularies_are_refused(run, tmp_path):
    shared = Vocabularies.load(run.vocabulary)
    other = Vocabularies.load(shutil.copytree(run.vocabulary, tmp_path / "other"))
    object.__setattr__(other.tgt, "model", b"other")
    with pytest.raises(ValueError, match="share one vocabulary"):
        package.write(tmp_path, {}, Vocabularies(shared.src, other.tgt), {}, None)


def test_the_package_is_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()) <= LARGEST


def test_the_card_says_what_was_measured(run):
    card = (FOLDER / "README.md").read_text()
    result = json.loads((ROOT / "benchmarks" / "results" / "demo_model.json").read_text())
    metrics = result["metrics"]
    leaves = flatten_paths(load_params(run, "latest")).values()
    assert f"{sum(leaf.size for leaf in leaves):,} parameters" in card
    assert f"{metrics['sacrebleu_13a']:.1f} sacreBLEU" in card and metrics["sacrebleu_13a"] >= 28
    assert result["command"] in card and "CC BY 2.0 FR" in card
