"""Function tags, indices and traces: gone, and counted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from flaxformer_mt.parsing.normal_form import (
    EMPTIED,
    SHORTENED,
    TRACES,
    normal_form,
    plain_label,
)
from flaxformer_mt.parsing.trees import Tree, parse
from tests.parsing.forests import trees


def test_what_a_treebank_adds_is_removed() -> None:
    # From EVALB's documentation, with an index and function tags.
    tree = parse(
        "( (S (NP-SBJ-1 (PRP It)) (VP (VBD reported) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))"
        " (NP=2 (NN|JJ x)) (-RRB- -RRB-)))"
    )
    plain, counts = normal_form(tree)
    assert str(plain) == ("(TOP (S (NP (PRP It)) (VP (VBD reported)) (NP (NN x)) (-RRB- -RRB-)))")
    assert counts == {TRACES: 2, EMPTIED: 2, SHORTENED: 2}


def test_a_sentence_of_traces_has_no_words() -> None:
    assert normal_form(parse("(TOP (S (NP (-NONE- *))))"))[0] == Tree()


@pytest.mark.parametrize(
    ("label", "plain"),
    [
        ("NP", "NP"),
        ("NP-SBJ", "NP"),
        ("PRT|ADVP", "PRT"),
        ("-X-", "-X-"),
        ("=", "="),
        ("S=1-2", "S"),
    ],
)
def test_labels(label: str, plain: str) -> None:
    assert plain_label(label) == plain


@settings(max_examples=50, deadline=None)
@given(tree=trees())
def test_a_plain_tree_stays_as_it_is(tree: Tree) -> None:
    assert normal_form(tree) == (tree, {})
