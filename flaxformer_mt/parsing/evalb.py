"""Bracket scores of EVALB with COLLINS.prm (Sekine and Collins 1997), the published parse F1.

A constituent is right if the other tree has one of its label over the same words; of equal ones,
as many are right as both trees have. Before spans are taken, words with the tags `, : `` '' .` and
traces are deleted, and constituents of such words alone. TOP does not count, ADVP equals PRT, and
function tags are cut off labels. Counts are added up over the corpus.

A sentence whose two trees have other words after that is an error, and one without a word in the
predicted tree is skipped; neither counts further, so both are to be reported with the scores. Where
EVALB would call an error what is only a punctuation mark with another tag, or without one (`XX`),
the gold tree's tags say which words are deleted, whichever of the trees has traces; and that is
counted too.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from flaxformer_mt.parsing.trees import ROOTS, TRACE, Tree, TreeError

DELETED_TAGS = frozenset((",", ":", "``", "''", ".", TRACE))
_DELETED_LABELS = frozenset((*ROOTS, *DELETED_TAGS))
_EQUAL = {"PRT": "ADVP"}
Spans = collections.Counter[tuple[str, int, int]]


@dataclasses.dataclass(frozen=True)
class SentenceScore:
    """Counts of constituents of one sentence."""

    state: Literal["scored", "skipped", "error"]
    length: int
    """Words of the gold tree, punctuation included and traces not."""
    gold: int = 0
    predicted: int = 0
    matched: int = 0
    by_gold_tags: bool = False
    """Whether the predicted tags did not suffice to delete the punctuation."""

    @property
    def exact(self) -> bool:
        return self.state == "scored" and self.gold == self.predicted == self.matched


@dataclasses.dataclass(frozen=True)
class Score:
    """A corpus's counts; shares lie in [0, 1] and are 0 where there is nothing to share."""

    sentences: int
    errors: int
    skipped: int
    gold: int
    predicted: int
    matched: int
    exact: int
    by_gold_tags: int

    @property
    def precision(self) -> float:
        return _share(self.matched, self.predicted)

    @property
    def recall(self) -> float:
        return _share(self.matched, self.gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of the two."""
        return _share(2 * self.matched, self.gold + self.predicted)

    @property
    def exact_match(self) -> float:
        """The share of the scored sentences in which every constituent is right."""
        return _share(self.exact, self.sentences - self.errors - self.skipped)


def trees_of_parses(gold: Sequence[Tree], count: int) -> tuple[Tree, ...]:
    """The gold trees of `count` parses, in order: all, or those with words where these are as many.

    Trees of traces alone have no sentence, so `linearize` leaves them out, and a parser's output of
    what it wrote has no line for them.
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


def score_sentence(gold: Tree, predicted: Tree) -> SentenceScore:
    """The counts for one sentence; trees as they were read, normal form or not."""
    length = sum(tag != TRACE for tag in gold.tags)
    kept, kept_predicted = _kept(gold.tags), _kept(predicted.tags)
    by_gold_tags = False
    if any(kept_predicted) and _words(gold, kept) != _words(predicted, kept_predicted):
        kept_by_gold = _kept_by_gold(gold, predicted)
        if kept_by_gold is None:
            return SentenceScore("error", length)
        kept_predicted, by_gold_tags = kept_by_gold, True
    if not any(kept_predicted):
        return SentenceScore("skipped", length)
    of_gold, of_predicted = _spans(gold, kept), _spans(predicted, kept_predicted)
    return SentenceScore(
        "scored",
        length,
        gold=of_gold.total(),
        predicted=of_predicted.total(),
        matched=(of_gold & of_predicted).total(),
        by_gold_tags=by_gold_tags,
    )


def total(scores: Iterable[SentenceScore], *, longest: int | None = None) -> Score:
    """The sum over sentences, those of at most `longest` words if that is given."""
    kept = [score for score in scores if longest is None or score.length <= longest]
    states = collections.Counter(score.state for score in kept)
    return Score(
        sentences=len(kept),
        errors=states["error"],
        skipped=states["skipped"],
        gold=sum(score.gold for score in kept),
        predicted=sum(score.predicted for score in kept),
        matched=sum(score.matched for score in kept),
        exact=sum(score.exact for score in kept),
        by_gold_tags=sum(score.by_gold_tags for score in kept),
    )


def _kept(tags: Sequence[str]) -> list[bool]:
    return [tag not in DELETED_TAGS for tag in tags]


def _kept_by_gold(gold: Tree, predicted: Tree) -> list[bool] | None:
    """Which predicted words the gold tree's tags keep; None if the trees have other words.

    A treebank's tree holds traces, of which a parser's may know nothing: either may be without.
    """
    for of_gold, of_predicted in itertools.product(_with_traces(gold), _with_traces(predicted)):
        if _words(gold, of_gold) == _words(predicted, of_predicted):
            kept = itertools.compress(_kept(gold.tags), of_gold)
            return [said and next(kept) for said in of_predicted]
    return None


def _with_traces(tree: Tree) -> tuple[list[bool], list[bool]]:
    """All words, and those that are no traces."""
    return [True] * len(tree.tags), [tag != TRACE for tag in tree.tags]


def _words(tree: Tree, kept: Sequence[bool]) -> list[str]:
    return list(itertools.compress(tree.words, kept))


def _spans(tree: Tree, kept: Sequence[bool]) -> Spans:
    """The constituents that count, over the words that are kept."""
    place = [0, *itertools.accumulate(kept)]
    spans: Spans = collections.Counter()
    for bracket in tree.brackets:
        start, end = place[bracket.start], place[bracket.end]
        label = _cut(bracket.label)
        if start < end and label not in _DELETED_LABELS:
            spans[_EQUAL.get(label, label), start, end] += 1
    return spans


def _cut(label: str) -> str:
    """As EVALB cuts it: NP of NP-SBJ-1 and NP=2, but PRT|ADVP is a label of its own."""
    return re.split("[-=]", label)[0] or label


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
