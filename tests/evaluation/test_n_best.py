"""Which translation of an n-best list is scored, and lists that can't be used."""

import json
from pathlib import Path

import pytest
from sacrebleu.metrics.chrf import CHRF

from flaxformer_mt.evaluation.compare import compare, find_system
from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.n_best import NBestLists, remarks
from flaxformer_mt.evaluation.references import References
from flaxformer_mt.evaluation.scoring import Scoring
from tests.cli.conftest import run_captured
from tests.evaluation.noise import grammar_text, noisy

_, REFERENCES = grammar_text(20)
OUTPUTS = [noisy(REFERENCES, share, seed) for seed, share in enumerate((0.2, 0.3, 0.1), start=1)]
SCORES = (-2.0, -1.0, -3.0)  # the second is the best by them
LISTS = [
    f"{sentence} ||| {output[sentence]} ||| LM0= -7 ||| {score}"
    for sentence in range(20)
    for output, score in zip(OUTPUTS, SCORES, strict=True)
]


def lists_of(*lines: str) -> NBestLists:
    return NBestLists.of("n", lines)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    for name, lines in {
        "lists": LISTS,
        "ref.de": REFERENCES,
        "first": OUTPUTS[0],
        "second": OUTPUTS[1],
    }.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_or_the_highest_score_is_chosen():
    lists = lists_of(*LISTS)
    assert lists.chosen("first") == OUTPUTS[0]
    assert lists.chosen("score") == OUTPUTS[1]
    assert lists.outscored() == [*range(1, 21)] and lists.left_out() == []
    assert lists_of("0 ||| a ||| 1", "0 ||| b ||| 1").chosen("score") == ["a"]


def test_the_oracle_is_the_best_by_chrf():
    texts = lists_of(*LISTS).oracle(References.of(REFERENCES))
    for sentence, text in enumerate(texts):
        choices = [output[sentence] for output in OUTPUTS]
        scores = [CHRF().sentence_score(one, [REFERENCES[sentence]]).score for one in choices]
        assert text == choices[scores.index(max(scores))]
    assert len({*map(OUTPUTS[2].__contains__, texts)}) == 2, "not always the same system's"
    several = References.of([["x"], ["a b"]])
    assert lists_of("0 ||| x y z", "0 ||| a b", "0 ||| x y z").oracle(several) == ["a b"]
    with pytest.raises(ScoringError, match="n has 20 sentences for 1 references"):
        lists_of(*LISTS).oracle(References.of(["a"]))


def test_sentences_without_translations_are_empty_and_told_of():
    lists = lists_of("0 ||| a ||| 1", "2 ||| c ||| 1", "2 ||| d ||| 2", "5 ||| e ||| 1")
    assert lists.chosen("first") == ["a", "", "c", "", "", "e"]
    assert lists.chosen("score") == ["a", "", "d", "", "", "e"]
    assert lists.oracle(References.of([*"abcdef"])) == ["a", "", "c", "", "", "e"]
    said = [*remarks(lists, None)]
    assert said[0] == "n-best lists of 6 sentences: scoring the first translation of each"
    assert said[1] == "3 lines without a translation: scored as an empty one (lines 2, 4, 5)"
    assert "1 line where another translation has a higher score" in said[2]
    assert len([*remarks(lists, "first")]) == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0 ||| a", "b"], "n:2: doesn't begin with a sentence's number"),
        (["0 ||| a", ""], "n:2: doesn't begin with"),
        (["1 ||| a"], "n:1: begins with sentence 1, but n-best lists count from 0"),
        (["0 ||| a", "2 ||| c", "1 ||| b"], "n:3: sentence 1 comes after sentence 2: sort"),
        (["0 ||| a", "9999 ||| c"], "n:2: sentence 9999 comes after sentence 0, but the file has"),
        (["0 ||| a ||| nan"], "n:1: has a score that isn't a number"),
    ],
)
def test_lists_that_cannot_be_used_are_refused_with_their_line(lines, message):
    with pytest.raises(ScoringError, match=message):
        lists_of(*lines)


def test_a_choice_by_score_needs_scores():
    lists = lists_of("0 ||| a ||| 1", "1 ||| b")
    with pytest.raises(ScoringError, match="n: sentence 1 has a translation without a score: use"):
        lists.chosen("score")
    assert lists.chosen("first") == ["a", "b"]


def scores_of(*words: str) -> dict:
    done = run_captured(
        "evaluate", "--ref", "ref.de", *words, "--no-ter", "--resamples", 0, "--json"
    )
    assert done.status == 0, done.errors
    return json.loads(done.output)["x"]


def test_evaluate_reads_lists(folder):
    given = ["--name", "x", "--hypotheses"]
    plain = [scores_of(*given, name)["metrics"] for name in ("first", "second")]
    by_default, by_score = (
        scores_of(*given, "lists"),
        scores_of(*given, "lists", "--from-n-best", "score"),
    )
    assert [by_default["metrics"], by_score["metrics"]] == plain
    assert by_default["hypotheses"] == "lists" and by_default["from_n_best"] == "first"
    oracle = scores_of(*given, "lists", "--from-n-best", "oracle")
    assert oracle["metrics"]["chrf"] > max(one["chrf"] for one in plain)
    done = run_captured("evaluate", "--hypotheses", "lists", "--ref", "ref.de")
    assert "20 lines where another translation has a higher score: --from-n-best" in done.errors


def test_compare_reads_lists(folder):
    assert find_system("a=lists", from_n_best="score").hypotheses == OUTPUTS[1]
    words = ["--ref", "ref.de", "--resamples", 10, "--trials", 10]
    done = run_captured("compare", "first", "lists", *words)
    assert (
        done.status == 0 and "lists: n-best lists of 20 sentences: scoring the first" in done.errors
    )
    scoring, notes = Scoring(ter=False, resamples=10), []
    compared = compare(
        ["a=lists", "b=lists"],
        REFERENCES,
        scoring=scoring,
        trials=10,
        from_n_best="score",
        note=notes.append,
    )
    assert compared.systems[0].assessment.hypotheses == OUTPUTS[1]
    assert notes[0].endswith("scoring the translation of each with the highest score")


def test_files_of_other_kinds_and_lengths_are_named(folder):
    for words, message in (
        (["--hypotheses", "first", "--from-n-best", "first"], "first: has no n-best lists, whose"),
        (["--workdir", "x", "--from-n-best", "first"], "--from-n-best is for a file of n-best"),
    ):
        done = run_captured("evaluate", *words, "--ref", "ref.de")
        assert done.status == 2 and message in done.last
    done = run_captured("compare", "first", "second", "--from-n-best", "score", "--ref", "ref.de")
    assert done.status == 2 and "--from-n-best is for files of n-best lists, but" in done.last
    (folder / "short").write_text("".join(f"{line}\n" for line in LISTS[:-3]))
    done = run_captured("evaluate", "--hypotheses", "short", "--ref", "ref.de")
    message = "short has n-best lists of 19 sentences, ref.de has 20 lines: they must match"
    assert done.status == 2 and message in done.last
