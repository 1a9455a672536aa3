"""Linearised trees, and back: the identity on what is sound, and every repair by hand."""

import pytest
from hypothesis import given, settings, strategies as st

from flaxformer_mt.parsing.linearization import (
    EMPTY,
    KINDS,
    MISSING,
    OTHER_LABEL,
    STRAY,
    SURPLUS,
    UNCLOSED,
    UNKNOWN_TOKEN,
    Repairs,
    flat,
    linearize,
    penn_tokens,
    rebuild,
    tokens_of,
)
from flaxformer_mt.parsing.trees import Bracket, Tree
from tests.parsing.forests import SENTENCE, parse, trees

TOKENS = ("(S", ")S", "(NP", ")NP", "(VP", ")VP", "XX", "NN", ".", "-LRB-", "S\u00a0S")
NO_TOKENS = tuple("( ) ⁇ (NP(VP )NP(VP (NP) )NP) ((S a)b X( (N\x0bP \fX".split(" "))
PUNCTUATION = (",", "-LRB-")
SOUP = st.lists(st.sampled_from(TOKENS + NO_TOKENS), max_size=20)


@settings(max_examples=200, deadline=None)
@given(tree=trees())
def test_linearised_trees_come_back(tree):
    rebuilt = rebuild(tree.words, linearize(tree, "tags"))
    assert rebuilt.tree == tree and not rebuilt.repairs
    without_tags = rebuild(tree.words, linearize(tree))
    assert without_tags.tree.brackets == tree.brackets and not without_tags.repairs
    assert set(without_tags.tree.tags) == {"XX"}
    of_words = rebuild(tree.words, linearize(tree, "words"))
    assert of_words.tree.brackets == tree.brackets and not of_words.repairs
    assert set(of_words.tree.tags) <= {"XX", *PUNCTUATION}


@settings(max_examples=500, deadline=None)
@given(words=st.lists(st.sampled_from(["a", "b", "f(x)"]), max_size=6), tokens=SOUP)
def test_whatever_comes_a_tree_of_the_sentence_is_made_of_it(words, tokens):
    rebuilt = rebuild(words, tokens)
    assert len(rebuilt.tree.words) == len(words)
    assert parse(str(rebuilt.tree)) == rebuilt.tree
    # Nothing is changed without being counted, and nothing counted without a change.
    assert (not rebuilt.repairs) == (linearize(rebuilt.tree, "tags") == tokens)
    assert set(rebuilt.repairs) <= set(KINDS) and all(rebuilt.repairs.values())
    again = rebuild(rebuilt.tree.words, linearize(rebuilt.tree, "tags"))
    assert again.tree == rebuilt.tree and not again.repairs


@pytest.mark.parametrize(
    ("tokens", "tree", "repairs"),
    [
        # Cut off, as an output at its greatest length is.
        ("(S (NP XX )NP (VP XX XX", "(S (NP (XX a)) (VP (XX b) (XX c)))", {UNCLOSED: 2}),
        ("(S (NP XX", "(S (NP (XX a)) (XX b) (XX c))", {UNCLOSED: 2, MISSING: 2}),
        # Closed too late and too early.
        ("(S XX (NP XX XX )S", "(S (XX a) (NP (XX b) (XX c)))", {UNCLOSED: 1}),
        ("(S XX )NP XX XX )S", "(S (XX a)) (XX b) (XX c)", {OTHER_LABEL: 1, STRAY: 1}),
        ("(S XX XX XX )S )S )NP", "(S (XX a) (XX b) (XX c))", {STRAY: 2}),
        # The opening bracket's label holds.
        ("(S (NP XX )VP XX XX )S", "(S (NP (XX a)) (XX b) (XX c))", {OTHER_LABEL: 1}),
        # Lost count of the words.
        ("(S XX XX )S", "(S (XX a) (XX b) (XX c))", {MISSING: 1}),
        ("(S XX )S (NP XX )NP", "(S (XX a)) (NP (XX b) (XX c))", {MISSING: 1}),
        ("(S XX )S XX", "(S (XX a)) (XX b) (XX c)", {MISSING: 1}),
        ("(S XX XX XX XX )S", "(S (XX a) (XX b) (XX c))", {SURPLUS: 1}),
        ("(S XX XX XX (NP XX )NP )S", "(S (XX a) (XX b) (XX c))", {SURPLUS: 1, EMPTY: 1}),
        # Constituents of nothing, tokens that are none.
        ("(S (NP )NP XX XX XX )S", "(S (XX a) (XX b) (XX c))", {EMPTY: 1}),
        ("(S ⁇ XX XX ( XX )S", "(S (XX a) (XX b) (XX c))", {UNKNOWN_TOKEN: 2}),
        ("(S(NP XX ((S XX X) XX )S)", "(XX a) (XX b) (XX c)", {UNKNOWN_TOKEN: 4}),
        ("", "(XX a) (XX b) (XX c)", {MISSING: 3}),
        ("(S", "(XX a) (XX b) (XX c)", {UNCLOSED: 1, MISSING: 3, EMPTY: 1}),
        # Several outermost constituents are no fault: a treebank has them as well.
        ("(NP XX )NP (VP XX XX )VP", "(NP (XX a)) (VP (XX b) (XX c))", {}),
    ],
)
def test_repairs(tokens, tree, repairs):
    rebuilt = rebuild(["a", "b", "c"], tokens_of(tokens))
    assert str(rebuilt.tree) == f"(TOP {tree})"
    assert rebuilt.repairs == repairs


def test_round_brackets_in_words_are_written_as_treebanks_do():
    tree = rebuild(["f(x)", "("], ["(NP", "XX", "XX", ")NP"]).tree
    assert str(tree) == "(TOP (NP (XX f-LRB-x-RRB-) (XX -LRB-)))"
    assert str(flat(["a", "(b"])) == "(TOP (XX a) (XX -LRB-b))" and flat([]) == Tree()
    # Depth costs nothing.
    depth = 20_000
    tree = parse("(NP " * depth + "(NN x)" + ")" * depth)
    assert tree.brackets == (Bracket("NP", 0, 1),) * depth
    assert parse(str(tree)) == tree
    assert rebuild(["x"], ["(NP"] * depth + ["NN"]).tree == tree


def test_the_form_and_its_tokens():
    plain = "(S (NP XX XX )NP (VP XX (NP XX )NP (PP XX (NP XX )NP )PP )VP XX )S"
    tagged = "(S (NP DT NN )NP (VP VBD (NP PRP )NP (PP IN (NP NNP )NP )PP )VP . )S"
    assert linearize(SENTENCE) == tokens_of(plain)
    assert linearize(SENTENCE, "tags") == tokens_of(tagged)
    tokens = penn_tokens()
    assert len(set(tokens)) == len(tokens)
    assert {*plain.split(), *tagged.split()} <= set(tokens)
    # Only blanks and tabs part tokens.
    assert tokens_of("  a\u00a0b \t c\u0085d ") == ["a\u00a0b", "c\u0085d"]


def test_repairs_are_added_up_and_none_is_left_out():
    repairs = Repairs()
    for words, tokens in (("a", "(S XX )S"), ("a b", "(S XX"), ("a b c", "(S XX )S")):
        repairs.add(rebuild(words.split(), tokens.split()))
    assert repairs.to_json() == {
        "sentences": 3,
        "malformed_sentences": 2,
        "repairs": {kind: {UNCLOSED: 1, MISSING: 3}.get(kind, 0) for kind in KINDS},
    }
    first, *further = repairs.lines()
    assert first == "3 sentences, of which 2 (66.7%) were malformed"
    assert sorted(further) == [f"  {UNCLOSED}: 1", f"  {MISSING}: 3"]
    assert list(Repairs().lines()) == ["0 sentences, of which 0 were malformed"]
