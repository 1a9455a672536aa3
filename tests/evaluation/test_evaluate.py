"""What an evaluation leaves in the run directory."""

from __future__ import annotations

import dataclasses
import json

import pytest

from flaxformer_mt.decoding import Translator
from flaxformer_mt.evaluation import Scoring, ScoringError, assess, corpus_scores, evaluate
from flaxformer_mt.evaluation.evaluation_files import kept_names, read_kept
from flaxformer_mt.rundir import RunDirectoryError
from tests.decoding.runs import PAIRS, make_run

SOURCES = [*(source for source, _ in PAIRS), "the big dog " * 20]
REFERENCES = [*(target for _, target in PAIRS), "der große hund " * 20]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("evaluate") / "run", {5: 1.0})
    return Translator.load(run.path)


def test_writes_hypotheses_and_scores(translator, tmp_path):
    folder = tmp_path / "evaluation"
    narrow = translator.with_config(beam_size=2)
    result = evaluate(narrow, SOURCES, REFERENCES, name="test_2016", directory=folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        *("test_2016.hyp.txt", "test_2016.json", "test_2016.ref.txt", "test_2016.src.txt")
    ]
    hypotheses = result.files.hypotheses.read_bytes().decode().split("\n")
    assert hypotheses[-1] == ""
    assert hypotheses[:-1] == [t.text for t in narrow.translate(SOURCES)]
    assert result.scores == assess(hypotheses[:-1], REFERENCES, sources=SOURCES).scores
    fast = corpus_scores(hypotheses[:-1], REFERENCES)
    assert (result.scores.bleu, result.scores.chrf) == (fast.bleu, fast.chrf)
    assert set(result.scores.metrics) == {"sacrebleu_13a", "chrf", "ter"}
    assert result.split_lines == (5,)

    document = json.loads(result.files.scores.read_text())
    for key, value in dataclasses.asdict(result.scores).items():
        assert document[key] == value
    assert document["weights"] == "best, step 5"
    assert (document["beam_size"], document["length_penalty"]) == (2, 0.6)
    assert document["split_lines"] == [5]
    assert document["seconds"] > 0

    kept = read_kept(folder, "test_2016")
    assert (kept.hypotheses, kept.references) == (hypotheses[:-1], REFERENCES)
    assert kept.sources == SOURCES

    # A second evaluation takes the first one's place.
    again = evaluate(
        translator,
        SOURCES[:2],
        REFERENCES[:2],
        name="test_2016",
        directory=folder,
        scoring=Scoring(tokenizer="none"),
        examples=3,
    )
    assert (folder / "test_2016.html").read_text().startswith("<!doctype html>")
    assert kept_names(folder) == ["test_2016"] and kept_names(tmp_path / "nowhere") == []
    assert again.scores.bleu_name == "bleu_tokenized_lc"
    assert len(result.files.hypotheses.read_text().splitlines()) == 2
    assert json.loads(again.files.scores.read_text())["beam_size"] == 4


def test_refuses_before_translating(translator, tmp_path):
    with pytest.raises(ScoringError, match="1 sources for 2 references"):
        evaluate(translator, ["a"], ["b", "c"], name="x", directory=tmp_path)
    with pytest.raises(ScoringError, match="no sentences"):
        evaluate(translator, [], [], name="x", directory=tmp_path)
    for name in ("../x", "", "a/b", ".hidden"):
        with pytest.raises(ScoringError, match="cannot name files"):
            evaluate(translator, ["a"], ["b"], name=name, directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(translator, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        evaluate(
            translator, SOURCES[:1], REFERENCES[:1], name="x", directory=tmp_path / "file" / "in"
        )
