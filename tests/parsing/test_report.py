"""What is told of scores and repairs: the numbers, and all of them."""

from __future__ import annotations

import json

from flaxformer_mt.parsing.evalb import score_sentence
from flaxformer_mt.parsing.repair import KINDS, MISSING, UNCLOSED, rebuild
from flaxformer_mt.parsing.report import Repairs, scores_json, scores_table
from flaxformer_mt.parsing.trees import parse

LONG = parse(f"(TOP (S {' '.join(['(NN a)'] * 41)}))")
SHORT = parse("(TOP (S (NP (NN a)) (VP (VB b))))")
WRONG = parse("(TOP (S (NN a) (VP (VB b))))")


def test_scores_of_all_sentences_and_of_short_ones() -> None:
    scores = [score_sentence(LONG, LONG), score_sentence(SHORT, WRONG)]
    told = json.loads(json.dumps(scores_json(scores)))
    assert told["all"]["sentences"] == 2 and told["at_most_40_words"]["sentences"] == 1
    assert told["all"]["recall"] == 75.0 and told["all"]["precision"] == 100.0
    assert told["at_most_40_words"]["f1"] == 80.0
    assert told["at_most_40_words"]["exact_match"] == 0.0
    table = scores_table(scores).split("\n")
    assert len({len(line) for line in table}) == 1, "columns are aligned"
    assert table[1].split() == ["f1", "85.71", "80.00"]
    assert [line[:28].strip().replace(" ", "_") for line in table[1:]] == list(told["all"])


def test_repairs_are_added_up_and_none_is_left_out() -> None:
    repairs = Repairs()
    repairs.add(rebuild(["a"], ["(S", "XX", ")S"]))
    repairs.add(rebuild(["a", "b"], ["(S", "XX"]))
    repairs.add(rebuild(["a", "b", "c"], ["(S", "XX", ")S"]))
    assert repairs.to_json() == {
        "sentences": 3,
        "malformed_sentences": 2,
        "repairs": {kind: {UNCLOSED: 1, MISSING: 3}.get(kind, 0) for kind in KINDS},
    }
    first, *rest = repairs.lines()
    assert first == "3 sentences, of which 2 (66.7%) were malformed"
    assert sorted(rest) == [f"  {UNCLOSED}: 1", f"  {MISSING}: 3"]
    assert list(Repairs().lines()) == ["0 sentences, of which 0 were malformed"]
