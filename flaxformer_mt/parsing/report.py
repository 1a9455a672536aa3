"""What the commands about trees tell: scores and counts, as text and as JSON."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flaxformer_mt.parsing.evalb import Score, SentenceScore, total
from flaxformer_mt.parsing.repair import KINDS, Rebuilt
from flaxformer_mt.text_table import aligned

CUTOFF = 40
"""EVALB sums up the sentences of at most this many words once more."""


def scores_json(scores: Sequence[SentenceScore]) -> dict[str, Any]:
    """Both of EVALB's sums: percentages, and the counts behind them."""
    return {
        "scorer": "EVALB, COLLINS.prm",
        "all": _described(total(scores)),
        f"at_most_{CUTOFF}_words": _described(total(scores, longest=CUTOFF)),
    }


def scores_table(scores: Sequence[SentenceScore]) -> str:
    """The same for people."""
    every, short = (_described(total(scores, longest=longest)) for longest in (None, CUTOFF))
    rows = [[name.replace("_", " "), _cell(every[name]), _cell(short[name])] for name in every]
    return aligned(["EVALB, COLLINS.prm", "all", f"<= {CUTOFF} words"], rows)


def _cell(value: float) -> str:
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}"


def _described(score: Score) -> dict[str, int | float]:
    return {
        "f1": 100 * score.f1,
        "precision": 100 * score.precision,
        "recall": 100 * score.recall,
        "exact_match": 100 * score.exact_match,
        "sentences": score.sentences,
        "error_sentences": score.errors,
        "skipped_sentences": score.skipped,
        "punctuation_by_gold_tags": score.by_gold_tags,
        "gold_constituents": score.gold,
        "predicted_constituents": score.predicted,
        "matched_constituents": score.matched,
    }


@dataclasses.dataclass
class Repairs:
    """How many sentences were malformed, and every repair by its kind."""

    sentences: int = 0
    malformed: int = 0
    kinds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, rebuilt: Rebuilt) -> None:
        self.sentences += 1
        self.malformed += bool(rebuilt.repairs)
        self.kinds.update(rebuilt.repairs)

    def to_json(self) -> dict[str, Any]:
        """Every kind is there, also those that did not occur."""
        return {
            "sentences": self.sentences,
            "malformed_sentences": self.malformed,
            "repairs": {kind: self.kinds[kind] for kind in KINDS},
        }

    def lines(self) -> Iterator[str]:
        share = f" ({self.malformed / self.sentences:.1%})" if self.sentences else ""
        yield f"{self.sentences:,} sentences, of which {self.malformed:,}{share} were malformed"
        yield from counted(self.kinds)


def counted(counts: Mapping[str, int]) -> Iterator[str]:
    """A line for each thing that occurred."""
    for what, count in counts.items():
        yield f"  {what}: {count:,}"
