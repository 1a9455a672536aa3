"""What is measured by which settings, and how it is shown."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import sacrebleu

from flaxformer_mt.evaluation import Scoring, ScoringError, assess, corpus_scores
from tests.evaluation.noise import grammar_text, noisy

SOURCES, REFERENCES = grammar_text(30)
HYPOTHESES = noisy(REFERENCES, 0.3, 1)
GERMAN = Scoring(language="de", resamples=50)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, ["sacrebleu_13a", "chrf", "bleu_paper", "ter"]),
        ({"ter": False}, ["sacrebleu_13a", "chrf", "bleu_paper"]),
        ({"tokenizer": "intl"}, ["sacrebleu_intl", "chrf", "bleu_paper", "ter"]),
        # Neither tokenised text nor text without case is what the paper scored.
        ({"tokenizer": "none"}, ["bleu_tokenized", "chrf", "ter"]),
        ({"lowercase": True}, ["sacrebleu_13a_lc", "chrf", "ter"]),
        ({"language": "cs"}, ["sacrebleu_13a", "chrf", "ter"]),
    ],
)
def test_the_metrics_of_a_setting(changes: dict, names: list[str]) -> None:
    found = assess(HYPOTHESES, REFERENCES, scoring=dataclasses.replace(GERMAN, **changes))
    assert list(found.scores.metrics) == list(found.scores.signatures) == names
    assert list(found.intervals) == names
    expected = 1 if changes.get("language") else 0
    assert sum("the paper's BLEU is left out" in note for note in found.scores.notes) == expected


def test_everything_is_in_the_json_and_in_the_table() -> None:
    found = assess(HYPOTHESES, REFERENCES, sources=SOURCES, scoring=GERMAN)
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert content["scoring"] == {"tokenizer": "13a", "lowercase": False, "language": "de"}
    assert content["intervals"]["resamples"] == 50
    for name, score in content["metrics"].items():
        spread = content["intervals"]["metrics"][name]
        assert spread["low"] <= score <= spread["high"]
        assert f"{score:.2f}" in found.table()
        assert content["signatures"][name] in found.table()
    assert sum(bucket["sentences"] for bucket in content["by_source_length"]) == 30
    assert content["by_source_length"][0]["high"] == 10
    assert "0 to 10" in found.table() and max(map(len, found.table().split("\n"))) < 150


def test_what_is_not_asked_for_is_not_there() -> None:
    found = assess(HYPOTHESES, REFERENCES, scoring=Scoring(language="de", resamples=0))
    assert not {"intervals", "by_source_length"} & set(found.to_json())
    assert "source words" not in found.table()


def test_nothing_in_common_is_finite() -> None:
    found = assess(["", "x"], ["a b", "c"], sources=["", "s"], scoring=GERMAN)
    assert all(math.isfinite(score) for score in found.scores.metrics.values())
    json.dumps(found.to_json(), allow_nan=False)


def test_what_is_refused() -> None:
    with pytest.raises(ScoringError, match="1 sources for 30 references"):
        assess(HYPOTHESES, REFERENCES, sources=["a"])
    with pytest.raises(ScoringError, match="COMET reads the sources"):
        assess(HYPOTHESES, REFERENCES, scoring=Scoring(comet="x"))


ODD = ["The cat sat on the mat.", "Ein Hund läuft, sagt er!", "", "It costs 3.50 (net)."]
ODD_TARGETS = [
    "The cat sat on a mat.",
    "Ein Hund rennt, sagt sie!",
    "Nothing.",
    "It costs 3.50.",
]


@pytest.mark.parametrize("lowercase", [False, True])
def test_equals_sacrebleu(lowercase):
    scores = corpus_scores(ODD, ODD_TARGETS, lowercase=lowercase)
    bleu = sacrebleu.corpus_bleu(ODD, [ODD_TARGETS], lowercase=lowercase)
    assert scores.bleu == bleu.score
    assert scores.precisions == list(bleu.precisions)
    assert scores.brevity_penalty == bleu.bp
    assert scores.length_ratio == pytest.approx(bleu.ratio)
    if not lowercase:
        assert scores.chrf == sacrebleu.corpus_chrf(ODD, [ODD_TARGETS]).score
    name = "sacrebleu_13a_lc" if lowercase else "sacrebleu_13a"
    assert set(scores.metrics) == set(scores.signatures) == {name, "chrf"}
    case = "case:lc" if lowercase else "case:mixed"
    assert case in scores.signatures[name] and "tok:13a" in scores.signatures[name]
    assert f"version:{sacrebleu.__version__}" in scores.signatures[name]
    assert case in scores.signatures["chrf"] and "nc:6" in scores.signatures["chrf"]


def test_tokenised_text_is_scored_as_it_stands():
    hypotheses = ["a man , in a hat .", "it 's a don't-know"]
    references = ["a man , with a hat .", "it is a don't-know"]
    scores = corpus_scores(hypotheses, references, tokenized=True)
    bleu = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True)
    assert scores.bleu == bleu.score
    assert scores.bleu_name == "bleu_tokenized_lc"
    assert "tok:none" in scores.signatures["bleu_tokenized_lc"]
    assert scores.reference_tokens == 11
    cased = corpus_scores(hypotheses, ["A man .", "It"], tokenized=True)
    assert cased.bleu_name == "bleu_tokenized"


def test_tokenised_output_scored_as_raw_text_is_noted_and_nothing_is_logged(caplog, capfd):
    lines = ["a man in a hat ."] * 150
    raw = corpus_scores(lines, lines)
    assert raw.bleu == pytest.approx(100) and raw.chrf == pytest.approx(100)
    assert "150 hypotheses end in a separate period" in raw.notes[0]
    assert corpus_scores(lines, lines, tokenized=True).notes == []
    assert not caplog.records and capfd.readouterr() == ("", "")
