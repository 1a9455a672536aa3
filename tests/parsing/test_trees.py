"""Reading and writing brackets, errors with their place; traces and function tags removed."""

import pytest
from hypothesis import given, settings

from flaxformer_mt.parsing.linearization import EMPTIED, SHORTENED, TRACES, normal_form, plain_label
from flaxformer_mt.parsing.trees import Bracket, Tree, TreeError, read
from tests.parsing.forests import parse, texts


@settings(max_examples=200, deadline=None)
@given(text=texts())
def test_text_and_trees_are_each_other_s_inverse(text):
    tree = parse(text)
    assert str(tree) == text
    assert normal_form(tree) == (tree, {})  # a plain tree stays as it is


def test_a_tree_is_its_words_tags_and_spans():
    assert parse("(TOP (S (NP (DT a) (NN b)) (VP (VP (VB c)) (, ,))) (X (. .)))") == Tree(
        words=("a", "b", "c", ",", "."),
        tags=("DT", "NN", "VB", ",", "."),
        brackets=(
            *(Bracket("S", 0, 4), Bracket("NP", 0, 2), Bracket("VP", 2, 4), Bracket("VP", 2, 3)),
            Bracket("X", 4, 5),
        ),
    )


@pytest.mark.parametrize("root", ["TOP", "ROOT", "S1", "", "TOP  "])
def test_the_outermost_bracket_is_no_constituent(root):
    assert parse(f"({root} (S (NP (NN x))))") == parse("(S (NP (NN x)))")


def test_within_the_tree_the_root_s_name_is_a_label_like_others():
    assert parse("(TOP (TOP (NN x)))").brackets == (Bracket("TOP", 0, 1),)


@pytest.mark.parametrize("text", ["(())", "()", "(TOP)", "(TOP ())", "( )"])
def test_no_parse_is_a_tree_without_words(text):
    assert parse(text) == Tree()


def test_a_tree_without_words_is_written_as_its_root():
    assert str(Tree()) == "(TOP)"


def test_trees_may_span_lines_and_share_them():
    lines = ["", "( (S", "    (NP (NN a)))) (TOP (NN b))", "\t(TOP", "(NN c)", ")"]
    words = [(number, tree.words) for number, tree in read(lines, "file")]
    assert words == [(2, ("a",)), (3, ("b",)), (4, ("c",))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(TOP (NP (NN x))", "file:1: the tree that begins here lacks 1 closing brackets"),
        ("(TOP (NN x)))", "file:1: a closing bracket outside of any tree"),
        ("(TOP (NN x)) y", "file:1: 'y' outside of any tree"),
        ("\n\n(NP (NN x) y)", "file:3: 'y' has no tag: write each word as"),
        ("(NP (NN x y))", "file:1: (NN contains more than 'x': a tag has one word"),
        ("(NP (NN x(1)))", "file:1: (NN contains more than 'x': a tag has one word"),
        ("(S (NP ) (NN x))", "file:1: (NP ) contains no word"),
        ("(S ( (NN x)))", "file:1: a bracket within the tree has no label"),
        ("(S (NP (NN x))\n\n(VP", "file:1: the tree that begins here lacks 2 closing brackets"),
    ],
)
def test_what_is_no_tree_is_named_with_its_line(text, message):
    with pytest.raises(TreeError) as caught:
        list(read(text.split("\n"), "file"))
    assert str(caught.value).startswith(message)


def test_what_a_treebank_adds_is_removed():
    # From EVALB's documentation, with an index and function tags.
    tree = parse(
        "( (S (NP-SBJ-1 (PRP It)) (VP (VBD reported) (SBAR (-NONE- 0) (S (-NONE- *T*-1))))"
        " (NP=2 (NN|JJ x)) (-RRB- -RRB-)))"
    )
    plain, counts = normal_form(tree)
    assert str(plain) == ("(TOP (S (NP (PRP It)) (VP (VBD reported)) (NP (NN x)) (-RRB- -RRB-)))")
    assert counts == {TRACES: 2, EMPTIED: 2, SHORTENED: 2}
    assert normal_form(parse("(TOP (S (NP (-NONE- *))))"))[0] == Tree()
    for label in ("NP-SBJ", "NP|PP", "NP=1-2", "NP"):
        assert plain_label(label) == "NP"
    assert (plain_label("-X-"), plain_label("=")) == ("-X-", "=")
