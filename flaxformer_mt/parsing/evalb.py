"""Bracket scores of EVALB with COLLINS.prm (Sekine and Collins 1997), the published parse F1.

A constituent matches if the other tree has one with the same label over the same words. First,
words tagged `, : `` '' .`, traces, and constituents of these alone are deleted. TOP doesn't count,
ADVP equals PRT, and function tags are cut off labels. Counts are summed over the corpus.

A sentence is an error if its two trees then have different words, and is skipped if the predicted
tree has none; both are reported but not scored. If only the tags of punctuation differ or are
missing (`XX`), EVALB would report an error; here the gold tags decide which words are deleted, and
that is counted too.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from flaxformer_mt.parsing.trees import ROOTS, TRACE, Tree, TreeError
from flaxformer_mt.text_table import aligned

DELETED_TAGS = frozenset((",", ":", "``", "''", ".", TRACE))
_DELETED_LABELS = frozenset((*ROOTS, *DELETED_TAGS))
_EQUAL = {"PRT": "ADVP"}
CUTOFF = 40  # EVALB also sums the sentences of at most this many words


@dataclasses.dataclass(frozen=True)
class Score:
    """Counts of one sentence or of a corpus."""

    sentences: int = 1
    errors: int = 0
    skipped: int = 0
    gold: int = 0  # constituents
    predicted: int = 0
    matched: int = 0
    exact: int = 0  # sentences whose constituents all match
    by_gold_tags: int = 0  # sentences whose punctuation is deleted by gold tags
    length: int = 0  # words of the gold tree, with punctuation, without traces

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return _share(2 * self.matched, self.gold + self.predicted)

    def to_json(self) -> dict[str, int | float]:
        """Percentages, and the counts behind them."""
        scored = self.sentences - self.errors - self.skipped
        return {
            "f1": 100 * self.f1,
            "precision": 100 * _share(self.matched, self.predicted),
            "recall": 100 * _share(self.matched, self.gold),
            "exact_match": 100 * _share(self.exact, scored),
            "sentences": self.sentences,
            "error_sentences": self.errors,
            "skipped_sentences": self.skipped,
            "punctuation_by_gold_tags": self.by_gold_tags,
            "gold_constituents": self.gold,
            "predicted_constituents": self.predicted,
            "matched_constituents": self.matched,
        }


def trees_of_parses(gold: Sequence[Tree], count: int) -> tuple[Tree, ...]:
    """The gold trees of `count` parses: all of them, or those with words if that is their number.

    `linearize` leaves out trees of traces alone. Raises TreeError, which counts the trees.
    """
    if len(gold) == count:
        return tuple(gold)
    with_words = tuple(tree for tree in gold if any(tag != TRACE for tag in tree.tags))
    if 0 < len(with_words) == count:
        return with_words
    without = len(gold) - len(with_words)
    raise TreeError(f"{len(gold):,} trees" + (f" ({without:,} without words)" if without else ""))


def describe_left_out(gold: Sequence[Tree], kept: Sequence[Tree]) -> str:
    """A line about the trees that `trees_of_parses` has left out; "" if there are none."""
    count = len(gold) - len(kept)
    return f"gold trees without words left out, as linearize does: {count:,}" if count else ""


def score_sentence(gold: Tree, predicted: Tree) -> Score:
    """The counts for one sentence's trees, in normal form or not."""
    length = sum(tag != TRACE for tag in gold.tags)
    gold_mask, predicted_mask = (
        [tag not in DELETED_TAGS for tag in tree.tags] for tree in (gold, predicted)
    )
    by_gold_tags = False
    if any(predicted_mask) and _words(gold, gold_mask) != _words(predicted, predicted_mask):
        mask_by_gold = _mask_by_gold(gold, predicted)
        if mask_by_gold is None:
            return Score(errors=1, length=length)
        predicted_mask = mask_by_gold
        by_gold_tags = True
    if not any(predicted_mask):
        return Score(skipped=1, length=length)

    gold_spans = _spans(gold, gold_mask)
    predicted_spans = _spans(predicted, predicted_mask)
    matched = (gold_spans & predicted_spans).total()
    return Score(
        gold=gold_spans.total(),
        predicted=predicted_spans.total(),
        matched=matched,
        exact=gold_spans.total() == predicted_spans.total() == matched,
        by_gold_tags=by_gold_tags,
        length=length,
    )


def total(scores: Iterable[Score], *, longest: int | None = None) -> Score:
    """The sum over sentences (of at most `longest` words)."""
    summed = [score for score in scores if longest is None or score.length <= longest]
    names = [field.name for field in dataclasses.fields(Score)]
    return Score(**{name: sum(getattr(score, name) for score in summed) for name in names})


def scores_json(scores: Sequence[Score]) -> dict[str, Any]:
    """Both of EVALB's sums."""
    return {
        "scorer": "EVALB, COLLINS.prm",
        "all": total(scores).to_json(),
        f"at_most_{CUTOFF}_words": total(scores, longest=CUTOFF).to_json(),
    }


def scores_table(scores: Sequence[Score]) -> str:
    """The same for people."""
    every, short = (total(scores, longest=longest).to_json() for longest in (None, CUTOFF))
    rows = [
        [name.replace("_", " "), *(f"{n:.2f}" if isinstance(n, float) else f"{n:,}" for n in pair)]
        for name, *pair in zip(every, every.values(), short.values(), strict=True)
    ]
    return aligned(["EVALB, COLLINS.prm", "all", f"<= {CUTOFF} words"], rows)


def _mask_by_gold(gold: Tree, predicted: Tree) -> list[bool] | None:
    """The predicted words that the gold tags keep; None if the trees have different words.

    Either tree may have traces that the other lacks.
    """
    with_traces = (
        ([True] * len(tree.tags), [tag != TRACE for tag in tree.tags]) for tree in (gold, predicted)
    )
    for gold_mask, predicted_mask in itertools.product(*with_traces):
        if _words(gold, gold_mask) == _words(predicted, predicted_mask):
            gold_tags = itertools.compress(gold.tags, gold_mask)
            return [is_word and next(gold_tags) not in DELETED_TAGS for is_word in predicted_mask]
    return None


def _words(tree: Tree, mask: Sequence[bool]) -> list[str]:
    return list(itertools.compress(tree.words, mask))


def _spans(tree: Tree, mask: Sequence[bool]) -> Counter[tuple[str, int, int]]:
    """The constituents over the words of the mask: label, first word and end."""
    place = [0, *itertools.accumulate(mask)]
    spans: Counter[tuple[str, int, int]] = Counter()
    for bracket in tree.brackets:
        start, end = place[bracket.start], place[bracket.end]
        # As EVALB cuts it: NP of NP-SBJ-1 and NP=2, but PRT|ADVP is a label of its own.
        label = re.split("[-=]", bracket.label)[0] or bracket.label
        if start < end and label not in _DELETED_LABELS:
            spans[_EQUAL.get(label, label), start, end] += 1
    return spans


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
