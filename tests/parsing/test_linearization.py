"""Linearised trees: the form of Vinyals et al. 2015, and what a vocabulary is told to hold."""

from __future__ import annotations

from hypothesis import given, settings

from flaxformer_mt.parsing.linearization import closed, linearize, opened, penn_tokens, tokens_of
from flaxformer_mt.parsing.trees import Tree
from tests.parsing.forests import SENTENCE, trees


def test_the_form() -> None:
    assert linearize(SENTENCE) == tokens_of(
        "(S (NP XX XX )NP (VP XX (NP XX )NP (PP XX (NP XX )NP )PP )VP XX )S"
    )
    assert linearize(SENTENCE, "tags") == tokens_of(
        "(S (NP DT NN )NP (VP VBD (NP PRP )NP (PP IN (NP NNP )NP )PP )VP . )S"
    )


@settings(max_examples=100, deadline=None)
@given(tree=trees())
def test_each_word_is_one_token_and_each_constituent_two(tree: Tree) -> None:
    tokens = linearize(tree)
    assert len(tokens) == len(tree.words) + 2 * len(tree.brackets)
    assert [opened(token) for token in tokens if opened(token)] == [
        bracket.label for bracket in tree.brackets
    ]
    assert sum(bool(closed(token)) for token in tokens) == len(tree.brackets)


def test_the_penn_treebank_s_tokens_hold_both_kinds_of_leaves() -> None:
    tokens = penn_tokens()
    assert len(set(tokens)) == len(tokens)
    assert set(linearize(SENTENCE)) | set(linearize(SENTENCE, "tags")) <= set(tokens)
    assert not any(" " in token for token in tokens)


def test_only_blanks_and_tabs_part_tokens() -> None:
    assert tokens_of("  a\u00a0b \t c\u0085d ") == ["a\u00a0b", "c\u0085d"]
    assert tokens_of("") == []
