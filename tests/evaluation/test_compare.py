"""Comparisons of several systems, as JSON and as tables."""

from __future__ import annotations

import dataclasses
import json

import pytest

from flaxformer_mt.evaluation import Scoring, ScoringError
from flaxformer_mt.evaluation.compare import compare
from flaxformer_mt.evaluation.evaluation_files import System
from flaxformer_mt.evaluation.significance import approximate_randomization, paired_bootstrap
from tests.evaluation.noise import grammar_text, noisy

SOURCES, REFERENCES = grammar_text(60)
SYSTEMS = [
    System(name="base", hypotheses=noisy(REFERENCES, 0.3, 1)),
    System(name="better", hypotheses=noisy(REFERENCES, 0.05, 2)),
    System(name="same", hypotheses=noisy(REFERENCES, 0.3, 1)),
]
SCORING = Scoring(language="de", resamples=100)


def test_each_system_is_tested_against_the_first() -> None:
    found = compare(SYSTEMS, REFERENCES, sources=SOURCES, scoring=SCORING, trials=200)
    base, better, same = found.systems
    assert base.tests == {}
    pair = base.assessment.measured, better.assessment.measured
    assert list(better.tests["bootstrap"].values()) == paired_bootstrap(*pair, samples=100)
    by_exchange = approximate_randomization(*pair, trials=200)
    assert list(better.tests["randomization"].values()) == by_exchange
    assert all(test.p_value == 1 for kind in same.tests.values() for test in kind.values())

    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert content["baseline"] == "base" and content["seed"] == 12345
    first, second, _ = content["systems"]
    assert "against_baseline" not in first and second["by_source_length"]
    outcome = second["against_baseline"]["bootstrap"]["ter"]
    assert outcome["difference"] < 0 and outcome["better"] > 0.99
    assert outcome["difference"] == pytest.approx(
        second["metrics"]["ter"] - first["metrics"]["ter"]
    )


def test_the_table_shows_each_metric_and_marks_what_is_significant() -> None:
    text = compare(SYSTEMS, REFERENCES, scoring=SCORING, trials=200).table()
    *blocks, legend = text.split("\n\n")
    assert [block.split()[0] for block in blocks] == ["sacrebleu_13a", "chrf", "bleu_paper", "ter"]
    for block in blocks:
        _, base, better, same, signature = block.split("\n")
        assert base.endswith("-") and better.count("*") == 1 and "*" not in same
        assert signature.startswith("nrefs:1|")
    assert legend.startswith("* p (randomization) below 0.05")
    assert max(map(len, text.split("\n"))) <= 125


def test_one_method_alone() -> None:
    found = compare(SYSTEMS[:2], REFERENCES, scoring=SCORING, methods=["randomization"], trials=50)
    assert list(found.systems[1].tests) == ["randomization"]
    assert "better in" not in found.table().split("\n")[0]
    # Randomization takes no resamples, and without them there are no intervals.
    none = dataclasses.replace(SCORING, resamples=0)
    again = compare(SYSTEMS[:2], REFERENCES, scoring=none, methods=["randomization"], trials=50)
    assert again.systems[1].tests == found.systems[1].tests and again.table()


@pytest.mark.parametrize(
    ("systems", "scoring", "message"),
    [
        (SYSTEMS[:1], SCORING, "takes two systems"),
        ([SYSTEMS[0], SYSTEMS[0]], SCORING, "two systems are called base: write NAME=PATH"),
        (SYSTEMS, Scoring(resamples=0), "resamples must be at least 1: bootstrap is made of them"),
        ([SYSTEMS[0], System(name="short", hypotheses=["a"])], SCORING, "short: 1 hypotheses for"),
    ],
)
def test_what_is_refused(systems: list[System], scoring: Scoring, message: str) -> None:
    with pytest.raises(ScoringError, match=message):
        compare(systems, REFERENCES, scoring=scoring)
