"""Scores worked out by hand, after EVALB's documentation; and against a plain quadratic count."""

import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.parsing.evalb import (
    DELETED_TAGS,
    score_sentence,
    scores_json,
    scores_table,
    total,
)
from flaxformer_mt.parsing.trees import Tree
from tests.parsing.forests import LABELS, SENTENCE, parse, trees

GOLD = str(SENTENCE)


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [
        # S 0-6, NP 0-2, VP 2-6, NP 3-4, PP 4-6, NP 5-6; neither TOP nor tags nor the full stop.
        (GOLD, GOLD, (6, 6, 6)),
        # Tags are not compared.
        ("(TOP (NP (DT a) (NN b)))", "(TOP (NP (X a) (Y b)))", (1, 1, 1)),
        # ADVP equals PRT, whichever tree has which.
        ("(TOP (ADVP (RB up)))", "(TOP (PRT (RP up)))", (1, 1, 1)),
        # A label between which an annotator did not choose is one of its own.
        ("(TOP (PRT|ADVP (RP up)))", "(TOP (PRT (RP up)))", (0, 1, 1)),
        # Of n equal ones and m, the smaller number is right.
        ("(TOP (NP (NN a)))", "(TOP (NP (NP (NP (NN a)))))", (1, 1, 3)),
        # Where punctuation hangs does not matter, and constituents of it alone do not count.
        (
            "(TOP (S (NP (NN a) (, ,)) (VP (VB b) (PRN (: --))) (. .)))",
            "(TOP (S (NP (NN a)) (, ,) (VP (VB b)) (X (: --) (. .))))",
            (3, 3, 3),
        ),
        # Function tags are cut off, traces deleted with what dominates nothing else.
        (
            "(TOP (S (NP-SBJ-1 (PRP It)) (VP (VBD reported) (SBAR (-NONE- 0)"
            " (S (-NONE- *T*-1))))))",
            "(TOP (S (NP (PRP It)) (VP (VBD reported))))",
            (3, 3, 3),
        ),
        # A predicted tree may leave punctuation out.
        ("(TOP (S (NP (NN a)) (. .)))", "(TOP (S (NP (NN a))))", (2, 2, 2)),
    ],
)
def test_counts_by_hand(gold, predicted, expected):
    score = score_sentence(parse(gold), parse(predicted))
    assert not score.errors and not score.skipped
    assert (score.matched, score.gold, score.predicted) == expected


def test_a_corpus_is_scored_by_its_sums():
    pairs = [
        ("(TOP (S (NP (NN a)) (VP (VB b) (NP (NN c)))))",) * 2,
        ("(TOP (S (NP (NN a)) (VP (VB b))))", "(TOP (S (NN a) (VB b)))"),
        ("(TOP (NP (NN a)))", "(TOP (NP (NN a) (VB b)))"),  # other words
        ("(TOP (NP (NN a)))", "(())"),
    ]
    scores = [score_sentence(parse(gold), parse(predicted)) for gold, predicted in pairs]
    score = total(scores)
    assert (score.sentences, score.errors, score.skipped) == (4, 1, 1)
    # S NP VP NP of four; then S of three, where one was predicted.
    assert (score.matched, score.gold, score.predicted) == (5, 7, 5)
    shares = scores_json(scores)["all"]
    assert (shares["recall"], shares["precision"], shares["exact_match"]) == (100 * 5 / 7, 100, 50)
    assert shares["f1"] == pytest.approx(100 * 10 / 12)
    table = scores_table(scores).split("\n")
    assert table[1].split() == ["f1", "83.33", "83.33"]
    assert [line.split("  ")[0].replace(" ", "_") for line in table[1:]] == list(shares)


def test_the_cutoff_counts_words_with_punctuation_and_without_traces():
    words = " ".join(["(NN a)"] * 38)
    of_40 = parse(f"(TOP (S {words} (, ,) (. .) (-NONE- *)))")
    of_41 = parse(f"(TOP (S {words} (NN b) (, ,) (. .)))")
    scores = [score_sentence(tree, tree) for tree in (of_40, of_41)]
    assert [score.length for score in scores] == [40, 41]
    content = scores_json(scores)
    assert content["all"]["sentences"] == 2 and content["at_most_40_words"]["sentences"] == 1


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [
        (GOLD, "(())"),
        (GOLD, "(TOP (, ,))"),
        ("(TOP (NP (: -)))", "(TOP (NP (XX -)))"),
    ],
)
def test_a_tree_without_words_is_skipped(gold, predicted):
    assert score_sentence(parse(gold), parse(predicted)).skipped


@pytest.mark.parametrize(
    "words", ["(NN a)", "(NN a) (NN c)", "(NN a) (NN b) (NN b)", "(NN A) (NN b)"]
)
def test_other_words_are_an_error(words):
    gold = parse("(TOP (NP (NN a) (NN b)))")
    score = score_sentence(gold, parse(f"(TOP (NP {words}))"))
    assert score.errors and not score.exact


def test_words_without_tags_are_scored_by_the_gold_tree_s():
    predicted = parse(
        "(TOP (S (NP (XX The) (XX man)) (VP (XX saw) (NP (XX her)) (PP (XX in)"
        " (NP (XX Rome))) (XX .))))"
    )
    score = score_sentence(SENTENCE, predicted)
    # VP takes in the full stop, which is deleted.
    assert (score.matched, score.gold, score.predicted) == (6, 6, 6)
    assert score.by_gold_tags and total([score]).by_gold_tags == 1
    assert not score_sentence(SENTENCE, SENTENCE).by_gold_tags


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [
        # From a treebank as it is, and rebuilt: no traces, no tags.
        (
            "( (S (NP-SBJ-1 (PRP He)) (VP (VBD was) (VP (VBN seen) (NP (-NONE- *-1)))) (. .)))",
            "(TOP (S (NP (XX He)) (VP (XX was) (VP (XX seen))) (XX .)))",
        ),
        # The trace between words: what is kept moves with them.
        ("(TOP (S (-NONE- *) (NN a) (, ,) (NN b)))", "(TOP (S (XX a) (XX ,) (XX b)))"),
        # Traces in both trees, where they need not be the same, and in the predicted one alone.
        ("(TOP (S (-NONE- *) (NN a) (. .)))", "(TOP (S (NN a) (NP (-NONE- 0)) (NN .)))"),
        ("(TOP (S (NN a) (. .)))", "(TOP (S (-NONE- 0) (XX a) (XX .)))"),
        # Words that a parser has taken for traces, and traces that it has taken for words.
        ("(TOP (S (NN a) (NN b) (. .)))", "(TOP (S (-NONE- a) (NN b) (NN .)))"),
        ("(TOP (S (NN a) (-NONE- *) (. .)))", "(TOP (S (XX a) (XX *) (XX .)))"),
    ],
)
def test_traces_are_no_other_words(gold, predicted):
    score = score_sentence(parse(gold), parse(predicted))
    assert score.by_gold_tags and score.exact
    unlike = score_sentence(parse(gold.replace("a)", "z)")), parse(predicted.replace("He", "z")))
    assert unlike.errors


def quadratic(gold: Tree, predicted: Tree) -> tuple[int, int, int]:
    """Constituents as lists of kept words; each predicted one takes the first gold one it meets."""

    def spans(tree: Tree) -> list[tuple[str, tuple[int, ...]]]:
        places = [place for place, tag in enumerate(tree.tags) if tag not in DELETED_TAGS]
        constituents = []
        for label, start, end in tree.brackets:
            inside = tuple(place for place in places if start <= place < end)
            if inside and label != "TOP":
                constituents.append(("ADVP" if label == "PRT" else label, inside))
        return constituents

    left, predictions, matched = spans(gold), spans(predicted), 0
    total = len(left)
    for span in predictions:
        if span in left:
            left.remove(span)
            matched += 1
    return matched, total, len(predictions)


@settings(max_examples=200, deadline=None)
@given(tree=trees(), data=st.data())
def test_counts_equal_those_of_a_plain_count(tree, data):
    brackets = []
    for bracket in tree.brackets:
        change = data.draw(st.sampled_from(["keep", "drop", "double", *LABELS]))
        if change != "drop":
            brackets.append(bracket._replace(label=change) if change in LABELS else bracket)
        if change == "double":
            brackets.append(bracket)
    predicted = Tree(tree.words, tree.tags, tuple(brackets))
    score = score_sentence(tree, predicted)
    if score.skipped:
        assert set(tree.tags) <= DELETED_TAGS
        return
    assert (score.matched, score.gold, score.predicted) == quadratic(tree, predicted)
    assert score_sentence(tree, tree).exact
