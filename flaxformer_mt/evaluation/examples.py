"""The sentences that a system translated worst and best, and where they differ from a reference."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence

import numpy as np

from flaxformer_mt.evaluation.metrics import Bleu, Chrf
from flaxformer_mt.evaluation.scoring import Assessment

SHOWN = 50  # of the worst, and of the best
_COMPARABLE = 4_000_000  # pairs of words beyond which a difference is not looked for


@dataclasses.dataclass(frozen=True)
class Span:
    """A stretch of words; `differs` if the other side lacks it."""

    text: str
    differs: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """A sentence of the test set. `line` counts from 1; the scores are those of this sentence."""

    line: int
    source: str | None
    reference: tuple[Span, ...]
    hypothesis: tuple[Span, ...]
    words: int  # of the source, or of the reference where there is none
    chrf: float
    bleu: float


def worst_and_best(
    assessment: Assessment,
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    sources: Sequence[str] | None = None,
    shown: int = SHOWN,
) -> list[Example]:
    """The `shown` lowest and as many highest by chrF, lowest first; all if they are no more.

    chrF, since BLEU of single sentences is mostly a matter of one 4-gram.
    """
    chrf = next(one for one in assessment.measured if isinstance(one.metric, Chrf))
    bleu = next(one for one in assessment.measured if isinstance(one.metric, Bleu))
    order = np.argsort(chrf.sentence_scores, kind="stable")
    if len(order) > 2 * shown:
        order = np.concatenate([order[:shown], order[len(order) - shown :]])
    found = []
    for number in map(int, order):
        reference, hypothesis = differences(references[number], hypotheses[number])
        source = None if sources is None else sources[number]
        found.append(
            Example(
                line=number + 1,
                source=source,
                reference=reference,
                hypothesis=hypothesis,
                words=len((references[number] if source is None else source).split()),
                chrf=float(chrf.sentence_scores[number]),
                bleu=float(bleu.sentence_scores[number]),
            )
        )
    return found


def differences(one: str, other: str) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Both texts in stretches of blank-separated words that the other one has, or lacks."""
    ours, theirs = one.split(), other.split()
    if len(ours) * len(theirs) > _COMPARABLE:
        return (Span(one, False),), (Span(other, False),)
    matcher = difflib.SequenceMatcher(a=ours, b=theirs, autojunk=False)
    sides: tuple[list[Span], list[Span]] = ([], [])
    for kind, start, end, their_start, their_end in matcher.get_opcodes():
        parts = (ours[start:end], theirs[their_start:their_end])
        for side, words in zip(sides, parts, strict=True):
            if words:
                side.append(Span(" ".join(words), kind != "equal"))
    return tuple(sides[0]), tuple(sides[1])
