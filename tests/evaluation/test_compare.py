"""Comparisons of several systems, as JSON and as tables."""

import dataclasses
import json

import pytest

from flaxformer_mt.evaluation.compare import compare
from flaxformer_mt.evaluation.evaluate import System
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.scoring import Scoring
from flaxformer_mt.evaluation.significance import approximate_randomization, paired_bootstrap
from tests.evaluation.noise import grammar_text, noisy

SOURCES, REFERENCES = grammar_text(60)
SYSTEMS = [
    System(name="base", hypotheses=noisy(REFERENCES, 0.3, 1)),
    System(name="better", hypotheses=noisy(REFERENCES, 0.05, 2)),
    System(name="same", hypotheses=noisy(REFERENCES, 0.3, 1)),
]
SCORING = Scoring(language="de", resamples=100)


@pytest.fixture(scope="module")
def comparison():
    return compare(SYSTEMS, REFERENCES, sources=SOURCES, scoring=SCORING, trials=200)


def test_each_system_is_tested_against_the_first(comparison):
    base, better, equal = comparison.systems
    assert base.tests == {}
    pair = base.assessment.measured, better.assessment.measured
    assert list(better.tests["bootstrap"].values()) == paired_bootstrap(*pair, samples=100)
    by_exchange = approximate_randomization(*pair, trials=200)
    assert list(better.tests["randomization"].values()) == by_exchange
    assert all(test.p_value == 1 for kind in equal.tests.values() for test in kind.values())


def test_the_json_has_differences_from_the_first(comparison):
    content = json.loads(json.dumps(comparison.to_json(), allow_nan=False))
    assert content["baseline"] == "base" and content["seed"] == 12345
    first, second, _ = content["systems"]
    assert "against_baseline" not in first and second["by_source_length"]
    outcome = second["against_baseline"]["bootstrap"]["ter"]
    assert outcome["difference"] < 0 and outcome["better"] > 0.99
    assert outcome["difference"] == pytest.approx(
        second["metrics"]["ter"] - first["metrics"]["ter"]
    )


def test_the_tables_mark_what_differs_from_the_first(comparison):
    *blocks, legend = comparison.table().split("\n\n")
    assert [block.split()[0] for block in blocks] == ["sacrebleu_13a", "chrf", "bleu_paper", "ter"]
    for block in blocks:
        _, first, second, third, signature = block.split("\n")
        assert first.endswith("-") and second.count("*") == 1 and "*" not in third
        assert signature.startswith("nrefs:1|")
    assert legend.startswith("* p (randomization) below 0.05")


def test_systems_that_were_searched_otherwise_are_named():
    hypotheses, references = ["a b", "c d"], ["a b", "c e"]
    paper = {"length_norm": "gnmt", "length_penalty": 0.6, "beam_size": 4}
    searches = {
        "paper": paper,
        "same": dict(paper),
        "other": paper | {"length_norm": "average"},
        "unknown": {},
    }
    systems = [
        System(name=name, hypotheses=hypotheses, references=references, search=search)
        for name, search in searches.items()
    ]
    notes: list[str] = []
    compare(systems, methods=["randomization"], trials=10, note=notes.append)
    assert notes == ["other: was searched otherwise than paper: length_norm average, not gnmt"]


def test_randomization_alone_takes_no_resamples_and_what_is_refused():
    none = dataclasses.replace(SCORING, resamples=0)
    comparison = compare(
        SYSTEMS[:2], REFERENCES, scoring=none, methods=["randomization"], trials=50
    )
    assert list(comparison.systems[1].tests) == ["randomization"]
    assert "better in" not in comparison.table().split("\n")[0]
    for systems, resamples, message in (
        (SYSTEMS[:1], 9, "give two or more systems"),
        ([SYSTEMS[0], SYSTEMS[0]], 9, "two systems are called base: write NAME=PATH"),
        (SYSTEMS, 0, "resamples must be at least 1: bootstrap needs them"),
        ([SYSTEMS[0], System(name="short", hypotheses=["a"])], 9, "short: 1 hypotheses for"),
    ):
        with pytest.raises(ScoringError, match=message):
            compare(systems, REFERENCES, scoring=Scoring(resamples=resamples))
