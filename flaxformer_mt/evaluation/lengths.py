"""Scores by the length of the source: where a system begins to fail."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from flaxformer_mt.evaluation.metrics import Bleu, Measured

BOUNDS = (10, 20, 30, 40, 50, 60)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bucket:
    """Corpus scores of the sentences whose source has `low` to `high` words, both included."""

    low: int
    high: int | None  # None: no bound
    sentences: int
    metrics: dict[str, float]
    length_ratio: float  # hypotheses to references, in the tokens of the first metric

    @property
    def label(self) -> str:
        if self.high is None:
            return f"{self.low} and more"
        return f"{self.low} to {self.high}"

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def by_length(
    measured: Sequence[Measured], sources: Sequence[str], *, bounds: Sequence[int] = BOUNDS
) -> tuple[Bucket, ...]:
    """A bucket up to each of the rising `bounds`, and one above; only those that have sentences.

    A source's length is its number of blank-separated words. The first metric is a BLEU.
    """
    assert isinstance(measured[0].metric, Bleu)
    words = np.array([len(source.split()) for source in sources])
    found = []
    starts = (0, *(bound + 1 for bound in bounds))
    for low, high in zip(starts, (*bounds, None), strict=True):
        chosen = (words >= low) & (words <= (words.max() if high is None else high))
        if not chosen.any():
            continue
        parts = [one.of(chosen) for one in measured]
        ours, theirs = parts[0].totals[:2]
        found.append(
            Bucket(
                low=low,
                high=high,
                sentences=int(chosen.sum()),
                metrics={part.metric.name: part.score for part in parts},
                length_ratio=float(ours / theirs) if theirs else 0.0,
            )
        )
    return tuple(found)
