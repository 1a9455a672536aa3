"""What is measured by which settings, and how it is shown."""

import dataclasses
import json
import math

import pytest
import sacrebleu

from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.scoring import Scoring, assess, corpus_scores
from tests.evaluation.noise import grammar_text, noisy

SOURCES, REFERENCES = grammar_text(30)
HYPOTHESES = noisy(REFERENCES, 0.3, 1)
GERMAN = Scoring(language="de", resamples=50)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ["sacrebleu_13a", "chrf", "bleu_paper", "ter"]),
        ({"tokenizer": "intl", "ter": False}, ["sacrebleu_intl", "chrf", "bleu_paper"]),
        # Neither tokenised text nor text without case is what the paper scored.
        ({"tokenizer": "none"}, ["bleu_tokenized", "chrf", "ter"]),
        ({"lowercase": True}, ["sacrebleu_13a_lc", "chrf", "ter"]),
        ({"language": "cs"}, ["sacrebleu_13a", "chrf", "ter"]),
        ({"chrf_word_order": 2}, ["sacrebleu_13a", "chrf", "chrf++", "bleu_paper", "ter"]),
    ],
)
def test_the_metrics_of_a_setting(changes, names):
    scoring = dataclasses.replace(GERMAN, **changes)
    assert [metric.name for metric in scoring.metrics(REFERENCES)] == names
    assert len(scoring.notes(REFERENCES)) == ("language" in changes)


def test_everything_is_in_the_json_and_in_the_table():
    assessment = assess(HYPOTHESES, REFERENCES, sources=SOURCES, scoring=GERMAN)
    content = json.loads(json.dumps(assessment.to_json(), allow_nan=False))
    assert content["scoring"] == {"tokenizer": "13a", "lowercase": False, "language": "de"}
    assert content["intervals"]["resamples"] == 50
    for name, score in content["metrics"].items():
        spread = content["intervals"]["metrics"][name]
        assert spread["low"] <= score <= spread["high"]
        assert f"{score:.2f}" in assessment.table()
        assert content["signatures"][name] in assessment.table()
    assert sum(bucket["sentences"] for bucket in content["by_source_length"]) == 30
    assert "0 to 10" in assessment.table()


def test_intervals_and_source_lengths_are_there_only_on_request():
    assessment = assess(HYPOTHESES, REFERENCES, scoring=Scoring(language="de", resamples=0))
    assert not {"intervals", "by_source_length"} & set(assessment.to_json())
    assert "source words" not in assessment.table()


def test_scores_of_outputs_that_have_nothing_in_common_with_the_references_are_finite():
    assessment = assess(["", "x"], ["a b", "c"], sources=["", "s"], scoring=GERMAN)
    assert all(math.isfinite(score) for score in assessment.scores.metrics.values())
    json.dumps(assessment.to_json(), allow_nan=False)


def test_comet_needs_the_sources():
    with pytest.raises(ScoringError, match="COMET needs the sources"):
        assess(HYPOTHESES, REFERENCES, scoring=Scoring(comet="x"))


@pytest.mark.parametrize("lowercase", [False, True])
def test_equals_sacrebleu(lowercase):
    odd = ["The cat sat on the mat.", "Ein Hund läuft, sagt er!", "", "It costs 3.50 (net)."]
    targets = ["The cat sat on a mat.", "Ein Hund rennt, sagt sie!", "Nothing.", "It costs 3.50."]
    scores = corpus_scores(odd, targets, lowercase=lowercase)
    bleu = sacrebleu.corpus_bleu(odd, [targets], lowercase=lowercase)
    assert scores.bleu == bleu.score
    assert scores.precisions == list(bleu.precisions)
    assert scores.brevity_penalty == bleu.bp
    assert scores.length_ratio == pytest.approx(bleu.ratio)
    if not lowercase:
        assert scores.chrf == sacrebleu.corpus_chrf(odd, [targets]).score
    assert scores.bleu_name == ("sacrebleu_13a_lc" if lowercase else "sacrebleu_13a")


def test_tokenised_text_is_scored_as_it_stands():
    hypotheses = ["a man , in a hat .", "it 's a don't-know"]
    references = ["a man , with a hat .", "it is a don't-know"]
    scores = corpus_scores(hypotheses, references, tokenizer="none")
    bleu = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True)
    assert (scores.bleu, scores.bleu_name) == (bleu.score, "bleu_tokenized_lc")
    assert scores.reference_tokens == 11
    cased = corpus_scores(hypotheses, ["A man .", "It"], tokenizer="none")
    assert cased.bleu_name == "bleu_tokenized"


def test_tokenised_text_that_is_scored_as_raw_is_noted_and_nothing_is_logged(caplog, capfd):
    lines = ["a man in a hat ."] * 150
    raw = corpus_scores(lines, lines)
    assert raw.bleu == pytest.approx(100) and raw.chrf == pytest.approx(100)
    assert "150 hypotheses end in a separate period" in raw.notes[0]
    assert corpus_scores(lines, lines, tokenizer="none").notes == []
    assert not caplog.records and capfd.readouterr() == ("", "")
