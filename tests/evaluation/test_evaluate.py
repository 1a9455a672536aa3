"""What an evaluation leaves in the run directory."""

import dataclasses
import json

import pytest

from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.evaluation.evaluate import check, evaluate, kept_names, read_kept
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.scoring import Scoring, assess, corpus_scores
from flaxformer_mt.rundir import RunDirectoryError
from tests.decoding.runs import PAIRS, make_run

SOURCES = [*(source for source, _ in PAIRS), "the big dog " * 20]
REFERENCES = [*(target for _, target in PAIRS), "der große hund " * 20]


def test_writes_hypotheses_and_scores(tmp_path):
    folder = tmp_path / "evaluation"
    run = make_run(tmp_path / "run", {5: 1.0})
    narrow = Translator.load(run.path).with_config(beam_size=2)
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

    # A second evaluation takes the first one's place, here of lines that are translated already.
    again = evaluate(
        narrow,
        SOURCES[:2],
        REFERENCES[:2],
        name="test_2016",
        directory=folder,
        scoring=Scoring(tokenizer="none"),
        examples=3,
        translated=(result.translations[:2], 7.0),
    )
    assert (folder / "test_2016.html").read_text().startswith("<!doctype html>")
    assert kept_names(folder) == ["test_2016"] and kept_names(tmp_path / "nowhere") == []
    assert again.scores.bleu_name == "bleu_tokenized_lc"
    assert len(result.files.hypotheses.read_text().splitlines()) == 2
    assert json.loads(again.files.scores.read_text())["seconds"] == 7.0


def test_what_cannot_be_scored_or_kept_is_refused_beforehand(tmp_path):
    with pytest.raises(ScoringError, match="1 sources for 2 references"):
        check("x", ["a"], ["b", "c"], tmp_path)
    with pytest.raises(ScoringError, match="no sentences"):
        check("x", [], [], tmp_path)
    for name in ("../x", "", "a/b", ".hidden"):
        with pytest.raises(ScoringError, match="cannot name files"):
            check(name, ["a"], ["b"], tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        check("x", ["a"], ["b"], tmp_path / "file" / "in")
