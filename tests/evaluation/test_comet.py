"""COMET through a stand-in for its program."""

import sys

import pytest

from flaxformer_mt.evaluation.comet import Comet, CometError, require_comet
from flaxformer_mt.evaluation.scoring import Scoring, assess

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
def program(tmp_path, monkeypatch) -> None:
    file = tmp_path / "comet-score"
    file.write_text(PROGRAM.format(python=sys.executable))
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_program_s_scores_are_averaged_and_stand_with_the_others(program):
    scoring = Scoring(comet="some/model", comet_gpus=2, resamples=20)
    assessment = assess(HYPOTHESES, REFERENCES, sources=SOURCES, scoring=scoring)
    assert assessment.measured[-1].sentence_scores.tolist() == pytest.approx([10, 0, 30])
    assert assessment.scores.metrics["comet"] == pytest.approx(40 / 3)
    assert assessment.scores.signatures["comet"].startswith(
        "nrefs:1|model:model|scale:100|version:"
    )
    assert assessment.intervals["comet"].high <= 30 and "comet" in assessment.buckets[0].metrics


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("broken", "failed: no such model; models are downloaded from the Hugging Face hub"),
        ("short", "2 for 3 sentences"),
        ("odd", "its scores cannot be read"),
    ],
)
def test_a_program_that_fails_is_explained(program, model, message):
    with pytest.raises(CometError, match=message):
        Comet(sources=SOURCES, model=model, gpus=2).counts(HYPOTHESES, REFERENCES)


def test_the_program_lies_beside_this_python_or_is_asked_for(program, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert require_comet() == str(tmp_path / "comet-score")
    (tmp_path / "comet-score").unlink()
    with pytest.raises(CometError, match="needs the package unbabel-comet: install it in its"):
        Comet(sources=SOURCES).counts(HYPOTHESES, REFERENCES)
