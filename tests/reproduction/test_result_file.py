"""Result files: what is written is read back, and what is malformed is refused by name."""

import copy
import hashlib
import json

import pytest

from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.reproduction import result_file
from flaxformer_mt.reproduction.result_file import (
    ResultError,
    mixture,
    read_result,
    read_results,
    write_result,
)
from tests.reproduction.made_up import COMMIT, MACHINE, experiment, result

VALID = result(experiment())
NAME = VALID["name"]


def write(folder, content):
    path = folder / f"{NAME}.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def written(path, **changes):
    settings = {"command": "c", "config": "c", "seconds": 1.0, "machine": MACHINE}
    settings |= {"metrics": {"chrf": 60.0}, "signatures": {"chrf": "nrefs:1"}}
    return write_result(path, **settings | changes)


def test_what_is_written_is_read_back(tmp_path, monkeypatch):
    monkeypatch.setattr(result_file, "git_commit", lambda: "a" * 40 + "-dirty")
    recorded = written(tmp_path / "new" / "tiny.json", metrics={"chrf": 60.0, "parameters": 7})
    assert read_results(tmp_path / "new") == [recorded]
    assert (recorded.name, recorded.commit) == ("tiny", "a" * 40 + "-dirty")
    assert recorded.machine == MACHINE
    assert {"jax", "flax", "sacrebleu"} <= set(recorded.versions)
    assert dict(recorded.metrics) == {"chrf": 60.0, "parameters": 7}


def test_an_installed_package_names_its_release(tmp_path, monkeypatch):
    monkeypatch.setattr(result_file, "git_commit", lambda: None)
    installed = written(tmp_path / "tiny.json", details={"data": "x"}, release="0.1.0")
    assert installed.commit == "release 0.1.0"
    assert read_result(tmp_path / "tiny.json") == installed


@pytest.mark.parametrize(
    ("commit", "chrf", "message"),
    [
        ("a" * 40, float("nan"), r"metrics\.chrf must be a finite number, not nan"),
        (None, 1.0, "git checkout"),
    ],
)
def test_an_invalid_result_is_not_written(tmp_path, monkeypatch, commit, chrf, message):
    monkeypatch.setattr(result_file, "git_commit", lambda: commit)
    with pytest.raises(ResultError, match=message):
        written(tmp_path / "bad" / "tiny.json", metrics={"chrf": chrf})
    assert not (tmp_path / "bad").exists()


def test_hypotheses_are_kept_beside_their_result(tmp_path, monkeypatch):
    """Of the last result alone, as text that `evaluate --hypotheses` reads, in the same bytes."""
    monkeypatch.setattr(result_file, "git_commit", lambda: "a" * 40)

    path = tmp_path / "tiny.json"

    def kept(**hypotheses):
        recorded = written(path, hypotheses=hypotheses)
        assert read_result(path) == recorded
        return {path.name: path.read_bytes() for path in tmp_path.glob("*.xz")}, recorded.hypotheses

    first = kept(test=["ein Häuschen", "", "\u2028"], valid=["b"])
    assert read_segments(str(tmp_path / "tiny.test.hyp.xz")) == ["ein Häuschen", "", "\u2028"]
    assert first[0].keys() == first[1].keys() == {"tiny.test.hyp.xz", "tiny.valid.hyp.xz"}
    assert first[1]["tiny.valid.hyp.xz"] == hashlib.sha256(b"b\n").hexdigest()
    assert kept(valid=["b"])[0] == {"tiny.valid.hyp.xz": first[0]["tiny.valid.hyp.xz"]}
    assert kept() == ({}, {})


REMOVED = object()
MALFORMED = [
    ("seconds", REMOVED, "lacks: seconds"),
    ("note", "hello", "unknown keys: note"),
    ("name", "other", "its name must be other.json"),
    ("name", "../tiny", "must match"),
    ("command", "", "command must be a string"),
    ("command", "python run.py --data /srv/data", "this machine's paths"),
    ("commit", "0123456", "neither a full git hash nor a release"),
    ("machine", "a laptop", "machine must be an object"),
    ("machine.cores", 0, "machine.cores"),
    ("machine.instructions", ["avx2"], "machine.instructions must be a string"),
    ("versions.jax", 1, "versions.jax must be a string"),
    ("metrics", {}, "metrics must map"),
    ("metrics.chrf", float("inf"), "metrics.chrf must be a finite number"),
    ("metrics.BLEU score", 1.0, "metric 'BLEU score' must match"),
    ("hypotheses", {"../tiny.test.hyp.xz": "0"}, f"must be named {NAME}.SET.hyp.xz"),
    ("signatures.ter", "nrefs:1", "signatures of missing metrics: ter"),
]


def test_malformed_files_are_refused_by_name(tmp_path):
    def refused(content, complaint):
        path = write(tmp_path, content)
        with pytest.raises(ResultError) as error:
            read_results(tmp_path)
        assert str(path) in str(error.value) and complaint in str(error.value)

    for key, value, complaint in MALFORMED:
        content = copy.deepcopy(VALID)
        *groups, leaf = key.split(".")
        place = content[groups[0]] if groups else content
        place[leaf] = value
        if value is REMOVED:
            del place[leaf]
        refused(content, complaint)
    refused('{\n  "name": tiny\n}', ".json:2: is not JSON")
    refused("[]", "the result must be an object")


CODE = {"commit": COMMIT, "packages": {"jax": "0.10.2"}}


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        ([], None),  # not recorded
        ([CODE], None),
        (
            [CODE | {"commit": "f" * 40}, CODE],
            "trained by ffffffffff, then by 0123456789; measured by 0123456789",
        ),
        (
            [CODE | {"packages": {"jax": "0.9.0"}}],
            "trained by 0123456789 (jax 0.9.0); measured by 0123456789 (jax 0.10.2)",
        ),
        (
            [{"commit": None, "packages": {"jax": "0.10.2", "flaxformer-mt": "0.1.0"}}],
            "trained by release 0.1.0 (flaxformer-mt 0.1.0); measured by 0123456789 "
            "(flaxformer-mt unknown)",
        ),
    ],
)
def test_other_code_that_trained_is_told(tmp_path, codes, told):
    content = result(experiment(), details={"trained_by": json.dumps(codes)})
    assert mixture(read_result(write(tmp_path, content))) == told
