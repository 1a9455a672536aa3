"""Trees as sequences of tokens, which a translation model can learn (Vinyals et al. 2015).

    (TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))
    She sleeps .
    (S (NP XX )NP (VP XX )VP XX )S

The words are the source. In the target each of them is a leaf: `XX`, or its tag. Scores do not ask
for tags, and without them Vinyals et al. had about a point of F1 more. A bracket and its label are
one token.
"""

from __future__ import annotations

import re
from typing import Literal

from flaxformer_mt.parsing.trees import Tree

Leaves = Literal["xx", "tags"]
LEAF = "XX"

# Penn Treebank II (Bies et al. 1995), and NML of its later editions.
_PHRASES = (
    "ADJP ADVP CONJP FRAG INTJ LST NAC NML NP NX PP PRN PRT QP RRC S SBAR SBARQ SINV SQ UCP VP "
    "WHADJP WHADVP WHNP WHPP X"
)
_TAGS = (
    "# $ '' , -LRB- -RRB- . : AFX CC CD DT EX FW HYPH IN JJ JJR JJS LS MD NN NNP NNPS NNS PDT POS "
    "PRP PRP$ RB RBR RBS RP SYM TO UH VB VBD VBG VBN VBP VBZ WDT WP WP$ WRB ``"
)


def linearize(tree: Tree, leaves: Leaves = "xx") -> list[str]:
    """The target's tokens; the tree is in normal form."""
    forms = {"open": "({}", "close": "){}", "word": LEAF if leaves == "xx" else "{}"}
    return [forms[step.kind].format(step.label) for step in tree.steps()]


def penn_tokens() -> tuple[str, ...]:
    """Every token of the Penn Treebank's linearised trees, whether some text has it or not."""
    brackets = (f"{sign}{label}" for label in _PHRASES.split() for sign in "()")
    return (LEAF, *brackets, *_TAGS.split())


def tokens_of(line: str) -> list[str]:
    """The words or tokens of a line; only blanks and tabs part them, as other spaces are text."""
    return [token for token in re.split("[ \t]+", line) if token]


def opened(token: str) -> str:
    """The label of an opening bracket; "" for other tokens."""
    return token[1:] if token[:1] == "(" else ""


def closed(token: str) -> str:
    """The label of a closing bracket; "" for other tokens."""
    return token[1:] if token[:1] == ")" else ""
