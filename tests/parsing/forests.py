"""Trees for the tests of this folder, drawn at random as text."""

from hypothesis import strategies as st

from flaxformer_mt.parsing.trees import Tree, read

LABELS = ("S", "NP", "VP", "PP", "ADVP", "PRT", "NML")
TAGS = ("NN", "VBZ", "DT", ",", ".", ":", "``", "''", "-LRB-", "PRP$", "XX")
WORDS = ("the", "cat", ",", "--", "α-2", "1\u00a0000", "a\u0085b", "-LRB-", "⁇", "TOP", "NP")


def texts() -> st.SearchStrategy[str]:
    """Bracketed trees with at least a word, as `str` writes them."""
    words = st.builds("({} {})".format, st.sampled_from(TAGS), st.sampled_from(WORDS))
    nodes = st.recursive(
        words,
        lambda inner: st.builds(
            "({} {})".format,
            st.sampled_from(LABELS),
            st.lists(inner, min_size=1, max_size=4).map(" ".join),
        ),
        max_leaves=12,
    )
    return st.lists(nodes, min_size=1, max_size=3).map(" ".join).map("(TOP {})".format)


def parse(text: str) -> Tree:
    """The one tree that a text consists of."""
    [(_, tree)] = read([text], "text")
    return tree


def trees() -> st.SearchStrategy[Tree]:
    return texts().map(parse)


SENTENCE = parse(
    "(TOP (S (NP (DT The) (NN man)) (VP (VBD saw) (NP (PRP her)) (PP (IN in) (NP (NNP Rome))))"
    " (. .)))"
)
