"""Bootstrap resampling of a test set (Koehn, 2004), vectorised over sufficient statistics.

A resample draws as many sentences as there are, with replacement. It is kept as how often each
sentence was drawn, so that the resamples' statistics are one matrix product. Draws and seed are
those of sacreBLEU's own test, and every system and metric is resampled alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from flaxformer_mt.evaluation.metrics import Measured

SEED = 12345  # sacreBLEU's
RESAMPLES = 1000
_CHUNK = 1 << 22  # draws held at a time, some 128 MB with what is made of them


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """The mean and the middle 95% of a score over resamples."""

    mean: float
    low: float
    high: float

    def to_json(self) -> dict[str, float]:
        return dataclasses.asdict(self)


def interval(scores: Float[np.ndarray, " samples"]) -> Interval:
    """Percentiles by rank, the lowest and the highest fortieth left out, as in sacreBLEU."""
    ranked = np.sort(scores)
    cut = len(ranked) // 40
    return Interval(
        mean=float(ranked.mean()), low=float(ranked[cut]), high=float(ranked[len(ranked) - cut - 1])
    )


def bootstrap_scores(
    measured: Sequence[Measured], *, samples: int = RESAMPLES, seed: int = SEED
) -> list[Float[np.ndarray, " samples"]]:
    """The score of each resample, for every one of `measured`: all over the same sentences."""
    found: list[list[Float[np.ndarray, " chunk"]]] = [[] for _ in measured]
    for weights in _weights(len(measured[0].counts), samples, seed):
        for scores, one in zip(found, measured, strict=True):
            scores.append(one.metric.score(weights @ one.counts))
    return [np.concatenate(scores) for scores in found]


def intervals(
    measured: Sequence[Measured], *, samples: int = RESAMPLES, seed: int = SEED
) -> list[Interval]:
    return [interval(scores) for scores in bootstrap_scores(measured, samples=samples, seed=seed)]


def _weights(sentences: int, samples: int, seed: int) -> Iterator[Float[np.ndarray, "c sentences"]]:
    """How often each sentence is drawn, some resamples at a time."""
    rng = np.random.default_rng(seed)
    for rows in chunks(samples, sentences):
        drawn = rng.choice(sentences, size=(rows, sentences), replace=True)
        places = drawn + sentences * np.arange(rows)[:, None]
        counted = np.bincount(places.ravel(), minlength=rows * sentences)
        yield counted.reshape(rows, sentences).astype(np.float64)


def chunks(samples: int, sentences: int) -> Iterator[int]:
    """Sizes of parts that fit into memory; all but the last are multiples of 32."""
    # Of 32, since the generator throws away the rest of 32 random bits after each call for bits.
    size = max(1, _CHUNK // (32 * sentences)) * 32
    for start in range(0, samples, size):
        yield min(size, samples - start)
