"""Trees as sequences of tokens, which a translation model can learn (Vinyals et al. 2015).

    (TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))
    She sleeps .
    (S (NP XX )NP (VP XX )VP XX )S

Treebanks' trees come to their normal form before: traces go, and constituents of traces alone; so
do function tags and indices of labels (NP-SBJ-1 and NP=2 become NP).

The words are the source. In the target each of them is a leaf: `XX`, its tag, or itself (Choe and
Charniak 2016). Scores do not ask for tags, and without them Vinyals et al. had about a point of F1
more. A bracket and its label are one token.
"""

import collections
import itertools
import re
from collections.abc import Sequence
from typing import Literal

from flaxformer_mt.parsing.trees import TRACE, Bracket, Tree

Leaves = Literal["xx", "tags", "words"]
LEAF = "XX"
TRACES = "traces removed"
EMPTIED = "constituents of traces alone removed"
SHORTENED = "labels shortened"

# Penn Treebank II (Bies et al. 1995), and NML of its later editions.
_PHRASES = (
    "ADJP ADVP CONJP FRAG INTJ LST NAC NML NP NX PP PRN PRT QP RRC S SBAR SBARQ SINV SQ UCP VP "
    "WHADJP WHADVP WHNP WHPP X"
)
TAGS = frozenset(
    "# $ '' , -LRB- -RRB- . : AFX CC CD DT EX FW HYPH IN JJ JJR JJS LS MD NN NNP NNPS NNS PDT POS "
    "PRP PRP$ RB RBR RBS RP SYM TO UH VB VBD VBG VBN VBP VBZ WDT WP WP$ WRB ``".split()
)


def normal_form(tree: Tree) -> tuple[Tree, collections.Counter[str]]:
    """The plain tree, and how often what was changed."""
    counts: collections.Counter[str] = collections.Counter()
    spoken = [tag != TRACE for tag in tree.tags]
    # How many words are left of each place.
    place = [0, *itertools.accumulate(spoken)]
    counts[TRACES] = len(spoken) - place[-1]
    brackets = []
    for label, start, end in tree.brackets:
        if place[start] == place[end]:
            counts[EMPTIED] += 1
            continue
        brackets.append(Bracket(plain_label(label), place[start], place[end]))
        counts[SHORTENED] += brackets[-1].label != label
    tags = [tag.partition("|")[0] or tag for tag in itertools.compress(tree.tags, spoken)]
    words = tuple(itertools.compress(tree.words, spoken))
    return Tree(words, tuple(tags), tuple(brackets)), +counts


def plain_label(label: str) -> str:
    """NP of NP-SBJ-1, NP=2, NP|PP; a label that begins with such a sign is left as it is."""
    return re.split("[-=|]", label)[0] or label


def linearize(tree: Tree, leaves: Leaves = "xx") -> list[str]:
    """The target's tokens; the tree is in normal form."""
    written = {"xx": (LEAF,) * len(tree.words), "tags": tree.tags, "words": tree.words}[leaves]
    signs = {"open": "(", "close": ")"}
    return [
        written[step.place] if step.kind == "word" else signs[step.kind] + step.label
        for step in tree.steps()
    ]


def penn_tokens() -> tuple[str, ...]:
    """Every token of the Penn Treebank's linearised trees, whether some text has it or not."""
    brackets = (f"{sign}{label}" for label in _PHRASES.split() for sign in "()")
    return (LEAF, *brackets, *sorted(TAGS))


def bracket_types(
    types: Sequence[str],
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Where among `types` each opening bracket and its closing one stand, and where leaves do.

    An empty text is neither, and so is a bracket without its counterpart.
    """
    places = {text: place for place, text in enumerate(types)}
    labels = [text[1:] for text in types if text[:1] == "("]
    pairs = [(places[f"({x}"], places[f"){x}"]) for x in labels if x and f"){x}" in places]
    leaves = [place for place, text in enumerate(types) if text and text[0] not in "()"]
    return tuple(pairs), tuple(leaves)


def escaped(text: str) -> str:
    """Round brackets as the Penn Treebank writes them in words: a tree's own are brackets."""
    return text.replace("(", "-LRB-").replace(")", "-RRB-")


def tokens_of(line: str) -> list[str]:
    """The words or tokens of a line; only blanks and tabs part them, as other spaces are text."""
    return [token for token in re.split("[ \t]+", line) if token]
