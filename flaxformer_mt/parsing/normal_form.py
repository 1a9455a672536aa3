"""Treebanks' trees as parsers are trained and scored on them: phrase labels over words, no more.

Traces (words tagged -NONE-, which nobody said) go, and constituents of traces alone; so do the
function tags and indices of labels: NP-SBJ-1 and NP=2 become NP.
"""

from __future__ import annotations

import collections
import itertools
import re

from flaxformer_mt.parsing.trees import Bracket, Tree

TRACE = "-NONE-"
TRACES = "traces removed"
EMPTIED = "constituents of traces alone removed"
SHORTENED = "labels shortened"


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
    tags = [_plain_tag(tag) for tag in itertools.compress(tree.tags, spoken)]
    words = tuple(itertools.compress(tree.words, spoken))
    return Tree(words, tuple(tags), tuple(brackets)), +counts


def plain_label(label: str) -> str:
    """NP of NP-SBJ-1, NP=2, NP|PP; a label that begins with such a sign is left as it is."""
    return re.split("[-=|]", label)[0] or label


def _plain_tag(tag: str) -> str:
    """The first of the tags between which an annotator did not choose: NN of NN|JJ."""
    return tag.partition("|")[0] or tag
