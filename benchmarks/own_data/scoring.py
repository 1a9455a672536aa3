"""Scores of outputs: sacreBLEU's BLEU and chrF of raw text, and how many outputs are short."""

import dataclasses
from collections.abc import Sequence

from flaxformer_mt.evaluation.metrics import Bleu, Chrf, measure

LONG_SOURCE = 6  # words from which an output can be short
SHORT = 1 / 3  # of the source's words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """`short` of the `long_sources` have an output of less than a third as many words."""

    bleu: float
    chrf: float
    short: int
    long_sources: int

    @property
    def short_share(self) -> float:
        return self.short / max(1, self.long_sources)


def scores(sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]) -> Scores:
    """Raises ScoringError for sides of unequal length."""
    bleu, chrf = measure([Bleu(), Chrf()], outputs, references)
    lengths = [
        (len(source.split()), len(output.split()))
        for source, output in zip(sources, outputs, strict=True)
    ]
    long_sources = [(words, written) for words, written in lengths if words >= LONG_SOURCE]
    return Scores(
        bleu=bleu.score,
        chrf=chrf.score,
        short=sum(written < SHORT * words for words, written in long_sources),
        long_sources=len(long_sources),
    )


def dev_bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Raises ScoringError for sides of unequal length."""
    (bleu,) = measure([Bleu()], outputs, references)
    return bleu.score
