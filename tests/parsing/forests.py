"""Trees for the tests of this folder: drawn at random, and as nested tuples to compare with."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from flaxformer_mt.parsing.trees import Bracket, Tree, read

LABELS = ("S", "NP", "VP", "PP", "ADVP", "PRT", "NML")
TAGS = ("NN", "VBZ", "DT", ",", ".", ":", "``", "''", "-LRB-", "PRP$", "XX")
WORDS = ("the", "cat", ",", "--", "α-2", "1\u00a0000", "a\u0085b", "-LRB-", "⁇", "TOP")

# A constituent is (label, [children]), a word (tag, word).
Nested = tuple[str, Any]
_leaves = st.tuples(st.sampled_from(TAGS), st.sampled_from(WORDS))
_nodes = st.recursive(
    _leaves,
    lambda children: st.tuples(st.sampled_from(LABELS), st.lists(children, min_size=1, max_size=4)),
    max_leaves=12,
)


def nested_trees() -> st.SearchStrategy[list[Nested]]:
    """What stands within the outermost bracket: at least a word."""
    return st.lists(_nodes, min_size=1, max_size=3)


def text_of(nodes: list[Nested]) -> str:
    """The bracketed text, written by recursion."""

    def write(node: Nested) -> str:
        label, content = node
        if isinstance(content, str):
            return f"({label} {content})"
        return f"({label} {' '.join(map(write, content))})"

    return f"(TOP {' '.join(map(write, nodes))})"


def flattened(nodes: list[Nested]) -> Tree:
    """The tree, by recursion and not by reading text."""
    words: list[str] = []
    tags: list[str] = []
    brackets: list[Bracket] = []

    def visit(node: Nested) -> None:
        label, content = node
        if isinstance(content, str):
            tags.append(label)
            words.append(content)
            return
        place, start = len(brackets), len(words)
        brackets.append(Bracket(label, start, start))
        for child in content:
            visit(child)
        brackets[place] = Bracket(label, start, len(words))

    for node in nodes:
        visit(node)
    return Tree(tuple(words), tuple(tags), tuple(brackets))


def parse(text: str) -> Tree:
    """The one tree that a text consists of."""
    [(_, tree)] = read([text], "text")
    return tree


def trees() -> st.SearchStrategy[Tree]:
    return nested_trees().map(flattened)


SENTENCE = parse(
    "(TOP (S (NP (DT The) (NN man)) (VP (VBD saw) (NP (PRP her)) (PP (IN in) (NP (NNP Rome))))"
    " (. .)))"
)
