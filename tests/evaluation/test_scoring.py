"""What is measured by which settings, and how it is shown."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from flaxformer_mt.evaluation import Scoring, ScoringError, assess
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
