"""Models pushed to the hub, models and data sets from it, on a stand-in that speaks its HTTP."""

import dataclasses
import json
import sys

import pytest

from flaxformer_mt.config import CorpusConfig, DataConfig, freeze
from flaxformer_mt.data.corpus import CorpusError, open_source, open_split
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.files.hub import Address, HubError, address
from flaxformer_mt.grammar.text import pairs
from flaxformer_mt.interop import ExportError
from flaxformer_mt.interop.import_run import import_marian
from flaxformer_mt.rundir.layout import open_run, read_record, read_status
from tests.cli.conftest import run as run, settings, workdir as workdir
from tests.data.corpus.test_parquet import write
from tests.interop.marian_models import write_arrays
from tests.interop.stand_in_hub import hub as hub
from tests.interop.test_import import no_peer as no_peer

pytest.importorskip("safetensors", reason="needs the [export] extra")


def pushed(workdir, out, name="lab/en-de"):
    export = ["export", "--workdir", workdir, "--format", "huggingface", "--unchecked"]
    return [*export, "--output", out, "--push", name]


def test_a_folder_is_pushed_and_comes_back_as_a_run(hub, run, workdir, tmp_path):
    out = tmp_path / "out"
    done = run(*pushed(workdir, out), "--license", "apache-2.0")
    assert (done.status, done.last) == (0, f"{hub.url}/lab/en-de: uploaded"), done.errors
    files = hub.files["models/lab/en-de"]
    assert files == {path.name: path.read_bytes() for path in out.iterdir()}
    card = files["README.md"].decode()
    assert 'language: ["en", "de"]\nlicense: "apache-2.0"\n' in card
    assert 'name = "lab/en-de"' in card and "These weights have not been evaluated" in card

    hub.files["models/lab/en-de"]["pytorch_model.bin"] = b"the same for others"
    hub.requests.clear()
    run("import", "--from", "lab/en-de", "--workdir", tmp_path / "back", status=0)
    for name in ("pytorch_model.bin", "parity"):
        assert not [request for request in hub.requests if name in request]
    ours, theirs = (Translator.load(folder) for folder in (workdir, tmp_path / "back"))
    assert ours.vocabularies == theirs.vocabularies
    back = open_run(tmp_path / "back")
    commit = hub.commit("models/lab/en-de")
    assert read_status(back).reason == f"imported from lab/en-de@{commit}"
    assert freeze(read_record(back).config, "config").name == "en-de"


@pytest.mark.parametrize(
    ("token", "name", "status", "message"),
    [
        ("", "lab/en-de", 2, "lab/en-de: uploading needs a hub token: use `hf auth login` or"),
        ("hf_wrong", "lab/en-de", 2, "lab/en-de: the hub refuses the token: use `hf auth login`"),
        ("hf_reader", "lab/en-de", 2, "lab/en-de: the token is read-only: use `hf auth login` or"),
        ("hf_writer", "en-de", 2, "en-de: not a valid hub name: write ORG/NAME"),
        ("hf_writer", "lab/en-de@v1", 2, "lab/en-de@v1: not a valid hub name: write ORG/NAME"),
    ],
)
def test_what_cannot_be_pushed_is_not_exported(
    hub, run, workdir, tmp_path, monkeypatch, token, name, status, message
):
    monkeypatch.setenv("HF_TOKEN", token)
    done = run(*pushed(workdir, tmp_path / "out", name))
    assert (done.status, message in done.last) == (status, True), done.errors
    assert done.errors.count("\n") == 1 and not (tmp_path / "out").exists()


def test_without_the_package_the_extra_is_named(run, workdir, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    install = "huggingface_hub is not installed: pip install 'flaxformer-mt[hub]'"
    done = run(*pushed(workdir, tmp_path / "out"))
    assert done.status == 2 and done.last.endswith(install)
    done = run("import", "--from", "lab/en-de", "--workdir", tmp_path / "back")
    assert done.status == 2 and "no such folder here; huggingface_hub is not" in done.last
    assert done.last.endswith(install) and not list(tmp_path.iterdir())


def test_a_folder_that_the_hub_does_not_take_stays(hub, run, workdir, tmp_path):
    out = tmp_path / "out"
    done = run(*pushed(workdir, out, "others/en-de"))
    assert done.status == 2 and (out / "model.safetensors").exists()
    assert "others/en-de: the token has no access" in done.last
    assert done.last.endswith(f"{out} is complete; upload it with `hf upload others/en-de {out}`")
    done = run(*pushed(workdir, tmp_path / "two"), "--format", "ctranslate2")
    assert done.status == 2 and "a folder for ctranslate2 has no model card" in done.last


@pytest.fixture
def model(hub, tmp_path):
    """A Marian model on the hub."""
    write_arrays(tmp_path / "marian")
    files = {path.name: path.read_bytes() for path in (tmp_path / "marian").iterdir()}
    hub.files["models/lab/marian"] = files
    return files


def test_a_revision_is_imported_and_what_was_fetched_is_kept(hub, model, tmp_path, capfd):
    commit = hub.commit("models/lab/marian")
    import_marian(f"lab/marian@{commit}", tmp_path / "one", ["x"])
    with pytest.raises(HubError, match="model lab/marian@v2: no such branch, tag or com"):
        import_marian("lab/marian@v2", tmp_path / "two", ["x"])
    import_marian("lab/marian", tmp_path / "two", ["x"])
    hub.shutdown()
    hub.server_close()
    import_marian("lab/marian", tmp_path / "three", ["x"])
    with pytest.raises(HubError, match="lab/other: the hub cannot be reached"):
        import_marian("lab/other", tmp_path / "four", ["x"])


def test_other_models_are_refused_before_their_weights_are_fetched(hub, model, tmp_path):
    model["config.json"] = json.dumps({"model_type": "bart"}).encode()
    with pytest.raises(ExportError, match="model_type is 'bart', not 'marian'"):
        import_marian("lab/marian", tmp_path / "run", ["x"])
    assert not any("model.safetensors" in request for request in hub.requests)
    with pytest.raises(HubError, match="no such folder here; model lab/none: not found on the hub"):
        import_marian("lab/none", tmp_path / "run", ["x"])


def test_a_folder_of_that_name_is_meant(hub, model, tmp_path, monkeypatch):
    (tmp_path / "lab").mkdir()
    (tmp_path / "marian").rename(tmp_path / "lab" / "marian")
    monkeypatch.chdir(tmp_path)
    import_marian("lab/marian", tmp_path / "run", ["x"])
    assert read_status(open_run(tmp_path / "run")).reason == "imported from lab/marian"
    assert not hub.requests


def shard(folder, made):
    """A file as the hub has them."""
    write(folder / "a.parquet", [{"en": src, "de": tgt} for src, tgt in made])
    return (folder / "a.parquet").read_bytes()


def test_a_data_set_is_fetched_once_and_prepared(hub, run, tmp_path):
    shards = ("train-0", "train-1", "validation-0")
    records = list(pairs("train", 180))
    hub.files["datasets/lab/pairs"] = {"fr/train-0.parquet": b""} | {
        f"en-de/{name}.parquet": shard(tmp_path, records[number::3])
        for number, name in enumerate(shards)
    }
    keys = {"src": "translation.en", "tgt": "translation.de", "kind": "hf"}
    changes = {
        f"data__{part}__{key}": keys[key] for part in ("train__mine", "valid") for key in keys
    }
    changes["data__train__mine__path"] = "hf://datasets/lab/pairs/en-de/train-*.parquet"
    changes["data__valid__path"] = "hf://datasets/lab/pairs@main/en-de/validation-*.parquet"
    prepare = ["prepare", *settings(tmp_path, **changes), "--workdir", tmp_path / "run"]
    done = run(*prepare)
    assert done.status == 0 and "training the vocabulary on 120 pairs" in done.errors, done.errors
    fetched = [
        request for request in hub.requests if request.startswith("GET") and "resolve" in request
    ]
    names = sorted(request.rpartition("/")[2] for request in fetched)
    assert names == [f"{name}.parquet" for name in shards]
    manifest = json.loads((tmp_path / "run" / "data" / "manifest.json").read_text())
    commit = hub.commit("datasets/lab/pairs")
    assert all(f"/snapshots/{commit}/en-de/" in file["path"] for file in manifest["inputs"])

    hub.shutdown()
    hub.server_close()
    done = run(*prepare)
    assert done.status == 0 and len(hub.requests) < 40, done.errors


def test_a_data_set_that_is_not_there_is_named(hub, tmp_path):
    hub.files["datasets/lab/pairs"] = {"en-de/train-0.parquet": shard(tmp_path, pairs("train", 1))}
    corpus = CorpusConfig(name="a", kind="hf", src="translation.en", tgt="translation.de")

    def opened(path, **more):
        of_hub = dataclasses.replace(corpus, path=f"hf://datasets/{path}")
        return open_source(of_hub, key="data.train.a", **more)

    for path, message in (
        ("lab/pairs/de-en/*", "data.train.a.path: dataset lab/pairs has no file that matches de"),
        ("lab/none/*", "data.train.a.path: dataset lab/none: not found on the hub, or not"),
        ("lab/pairs@refs%2Fx/*", "dataset lab/pairs@refs/x: no such branch, tag or com"),
    ):
        with pytest.raises(CorpusError, match=message):
            opened(path)
    with pytest.raises(CorpusError, match="dataset lab/pairs: not downloaded yet"):
        opened("lab/pairs/en-de/*", download=False)
    fetched, reopened = (
        opened("lab/pairs/en-de/*", download=download) for download in (True, False)
    )
    assert list(fetched.records()) == list(reopened.records())
    data = DataConfig(train=(dataclasses.replace(corpus, path="hf://datasets/lab/none/*"),))
    assert open_split(data, "train", without_fetched=True) == []


def test_addresses_are_told_from_paths():
    assert address("lab/en-de") == Address("lab/en-de") and str(address("a/b@v1")) == "a/b@v1"
    for text in ("marian", "a/b/c", "/a/b", "./a", "../a", "~/a", "gs://a/b", "a/b@", "a/b c"):
        assert address(text) is None
