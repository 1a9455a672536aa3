"""COMET through stand-ins for its package: a module, and a program."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.evaluation import Scoring, assess, comet as ours
from flaxformer_mt.evaluation.comet import Comet, CometError, require_comet
from flaxformer_mt.evaluation.metrics import measure

SOURCES, HYPOTHESES, REFERENCES = ["s1", "s2\u2028x", "s3"], ["a", "", "c d"], ["a", "b", "c"]

PROGRAM = """#!{python}
import json, pathlib, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
quiet = sys.argv.index("--quiet")
given |= dict(zip(sys.argv[quiet + 1::2], sys.argv[quiet + 2::2]))
if given["--model"] == "broken":
    print("loading\\nno such model", file=sys.stderr)
    sys.exit(3)
sides = [pathlib.Path(given[flag]).read_text().splitlines() for flag in ("-s", "-t", "-r")]
assert given["--gpus"] == "2"
data = [{{"src": s, "mt": t, "COMET": len(t) / 10}} for s, t, _ in zip(*sides, strict=True)]
if given["--model"] == "short":
    data.pop()
if given["--model"] == "odd":
    data = "?"
pathlib.Path(given["--to_json"]).write_text(json.dumps({{given["-t"]: data}}))
"""


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a module nor a program, whatever this machine has."""
    monkeypatch.setattr(ours, "_has_module", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda _: None)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The package as a module; what it was asked."""
    asked: dict[str, Any] = {}

    class Model:
        def predict(
            self, samples: list[dict[str, str]], *, batch_size: int, gpus: int, progress_bar: bool
        ) -> dict[str, Any]:
            asked.update(samples=samples, gpus=gpus)
            return {"scores": [len(sample["mt"]) / 10 for sample in samples]}

    def download_model(name: str) -> str:
        if name == "nowhere":
            raise KeyError("Model 'nowhere' not supported by COMET.")
        return f"/models/{name}"

    def load_from_checkpoint(path: str) -> Model:
        asked["path"] = path
        return Model()

    package: Any = types.ModuleType("comet")
    package.download_model, package.load_from_checkpoint = download_model, load_from_checkpoint
    monkeypatch.setitem(sys.modules, "comet", package)
    monkeypatch.setattr(ours, "_has_module", lambda: True)
    return asked


@pytest.fixture
def program(nothing: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "comet-score"
    file.write_text(PROGRAM.format(python=sys.executable))
    file.chmod(0o755)
    monkeypatch.setattr(ours, "PROGRAM", str(file))
    monkeypatch.setattr(shutil, "which", lambda _: str(file))


def test_the_module_is_given_sources_and_its_scores_are_averaged(module: dict[str, Any]) -> None:
    metric = Comet(sources=SOURCES, model="some/model", gpus=1)
    (found,) = measure([metric], HYPOTHESES, REFERENCES)
    assert module["path"] == "/models/some/model" and module["gpus"] == 1
    assert module["samples"][1] == {"src": SOURCES[1], "mt": "", "ref": "b"}
    assert found.sentence_scores.tolist() == pytest.approx([10, 0, 30])
    assert found.score == pytest.approx(40 / 3)
    assert metric.signature.startswith("nrefs:1|model:model|scale:100|version:")


def test_a_checkpoint_s_path_is_not_looked_up(module: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "model.ckpt").write_text("")
    measure([Comet(sources=SOURCES, model=str(tmp_path / "model.ckpt"))], HYPOTHESES, REFERENCES)
    assert module["path"] == str(tmp_path / "model.ckpt")


def test_the_program_gives_the_same(program: None) -> None:
    require_comet()
    metric = Comet(sources=SOURCES, gpus=2)
    (found,) = measure([metric], HYPOTHESES, REFERENCES)
    assert found.sentence_scores.tolist() == pytest.approx([10, 0, 30])


def test_it_stands_with_the_others(module: dict[str, Any]) -> None:
    found = assess(
        HYPOTHESES, REFERENCES, sources=SOURCES, scoring=Scoring(comet="m", resamples=20)
    )
    assert found.scores.metrics["comet"] == pytest.approx(40 / 3)
    assert found.intervals["comet"].high <= 30
    assert "comet" in found.buckets[0].metrics and "model:m" in found.table()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("broken", "failed: no such model; a model is fetched from the Hugging Face hub"),
        ("short", "gave 2 scores for 3 sentences"),
        ("odd", "its scores cannot be read"),
    ],
)
def test_a_program_that_fails_is_explained(program: None, model: str, message: str) -> None:
    with pytest.raises(CometError, match=message):
        measure([Comet(sources=SOURCES, model=model, gpus=2)], HYPOTHESES, REFERENCES)


def test_a_module_that_fails_is_explained(module: dict[str, Any]) -> None:
    with pytest.raises(CometError, match="the model nowhere failed: KeyError: .*not supported"):
        measure([Comet(sources=SOURCES, model="nowhere")], HYPOTHESES, REFERENCES)


def test_without_the_package_it_says_what_to_install(nothing: None) -> None:
    for act in (require_comet, lambda: Comet(sources=SOURCES).counts(HYPOTHESES, REFERENCES)):
        with pytest.raises(CometError, match="needs the package unbabel-comet, which is not inst"):
            act()
