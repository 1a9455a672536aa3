"""Which gold trees a parser's output belongs to.

A treebank may have trees of traces alone. They have no sentence, so `linearize` leaves them out,
and all that is made of its output has no line for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from flaxformer_mt.parsing.normal_form import TRACE
from flaxformer_mt.parsing.trees import Tree, TreeError


def trees_of_parses(gold: Sequence[Tree], count: int) -> tuple[Tree, ...]:
    """The gold trees of `count` parses, in order: all, or those with words where these are as many.

    Raises TreeError, which says how many trees there are and how many of them have no words.
    """
    if len(gold) == count:
        return tuple(gold)
    with_words = tuple(tree for tree in gold if any(tag != TRACE for tag in tree.tags))
    if 0 < len(with_words) == count:
        return with_words
    without = len(gold) - len(with_words)
    raise TreeError(f"{len(gold):,} trees" + (f" ({without:,} without words)" if without else ""))


def describe_left_out(gold: Sequence[Tree], kept: Sequence[Tree]) -> str:
    """What to tell of the trees that `trees_of_parses` has left out; "" if there are none."""
    count = len(gold) - len(kept)
    return f"gold trees without words left out, as linearize does: {count:,}" if count else ""
