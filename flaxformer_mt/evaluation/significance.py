"""Bootstrap resampling of a test set, and whether two systems differ by more than chance.

A resample (Koehn, 2004) draws as many sentences as there are, with replacement. It is stored as
counts per sentence, so its statistics are one matrix product. There are two paired tests, which
follow sacreBLEU's, with its draws for the same seed, for every system and metric alike:

- paired bootstrap resampling (Koehn, 2004): the systems are scored on resampled test sets;
- approximate randomisation (Riezler and Maxwell, 2005): the systems' outputs are exchanged for
  random sentences, since under the null hypothesis it doesn't matter whose they are.

A p-value also counts chance differences equal to the real one (sacreBLEU: only larger ones), which
matters only for ties: two equal systems have a p of 1.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxformer_mt.evaluation import RESAMPLES, SEED, TRIALS
from flaxformer_mt.evaluation.metrics import Measured

Samples = Float[np.ndarray, " samples"]
_CHUNK = 1 << 22  # draws held at a time, some 128 MB with all that is computed from them
_TIE = 1e-9  # differences of scores that are rounding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """The mean and the middle 95% of a score over resamples."""

    mean: float
    low: float
    high: float


def interval(scores: Samples) -> Interval:
    """By rank, without the lowest and highest fortieth, as in sacreBLEU."""
    ranked = np.sort(scores)
    cut = len(ranked) // 40
    return Interval(
        mean=float(ranked.mean()), low=float(ranked[cut]), high=float(ranked[len(ranked) - cut - 1])
    )


def bootstrap_scores(measured: Sequence[Measured], *, samples: int, seed: int) -> list[Samples]:
    """The score of each resample, for each of `measured`, over the same sentences."""
    parts: list[list[Samples]] = [[] for _ in measured]
    rng = np.random.default_rng(seed)
    sentences = len(measured[0].counts)
    for rows in chunks(samples, sentences):
        drawn = rng.choice(sentences, size=(rows, sentences), replace=True)
        cells = drawn + sentences * np.arange(rows)[:, None]
        draws = np.bincount(cells.ravel(), minlength=rows * sentences)
        weights = draws.reshape(rows, sentences).astype(np.float64)
        for scores, corpus in zip(parts, measured, strict=True):
            scores.append(corpus.metric.score(weights @ corpus.counts))  # [rows]
    return [np.concatenate(scores) for scores in parts]


def chunks(samples: int, sentences: int) -> Iterator[int]:
    """Sizes of parts that fit into memory; all but the last are multiples of 32."""
    # The generator discards the rest of 32 random bits after each call for bits.
    size = max(1, _CHUNK // (32 * sentences)) * 32
    for start in range(0, samples, size):
        yield min(size, samples - start)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """One metric's outcome. `difference` is the system's score minus the baseline's."""

    metric: str
    difference: float
    p_value: float
    interval: Interval | None = None  # of the difference; only for the bootstrap
    better: float | None = None  # share of the resamples in which the system is the better one

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"difference": self.difference, "p_value": self.p_value}
        if self.interval is not None:
            content |= {"interval": dataclasses.asdict(self.interval), "better": self.better}
        return content


def written(p_value: float, digits: int = 4) -> str:
    """A p-value for people: never 0, which no test can find."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.{digits}f}"


def paired_bootstrap(
    baseline: Sequence[Measured],
    system: Sequence[Measured],
    *,
    samples: int = RESAMPLES,
    seed: int = SEED,
) -> list[Outcome]:
    """A test for each metric; both systems have their metrics in the same order."""
    scores = bootstrap_scores([*baseline, *system], samples=samples, seed=seed)
    baseline_scores, system_scores = scores[: len(baseline)], scores[len(baseline) :]
    outcomes = []
    for first, second, first_scores, second_scores in zip(
        baseline, system, baseline_scores, system_scores, strict=True
    ):
        differences = second_scores - first_scores
        # As in sacreBLEU: absolute differences, shifted to mean zero.
        sizes = np.abs(differences)
        outcome = _outcome(first, second, sizes - sizes.mean())
        better = differences > _TIE if first.metric.higher_is_better else differences < -_TIE
        outcomes.append(
            dataclasses.replace(
                outcome, interval=interval(differences), better=float(better.mean())
            )
        )
    return outcomes


def approximate_randomization(
    baseline: Sequence[Measured],
    system: Sequence[Measured],
    *,
    trials: int = TRIALS,
    seed: int = SEED,
) -> list[Outcome]:
    """A test for each metric; both systems have their metrics in the same order."""
    rng = np.random.default_rng(seed)
    sentences = len(baseline[0].counts)
    parts: list[list[Samples]] = [[] for _ in baseline]
    for rows in chunks(trials, sentences):
        keep = rng.integers(2, size=(rows, sentences), dtype=bool).astype(np.float64)
        for differences, first, second in zip(parts, baseline, system, strict=True):
            # Exchanged for random sentences: [rows, statistics].
            first_totals = second.totals + keep @ (first.counts - second.counts)
            second_totals = first.totals + second.totals - first_totals
            score = first.metric.score
            differences.append(np.abs(score(first_totals) - score(second_totals)))
    return [
        _outcome(first, second, np.concatenate(differences))
        for differences, first, second in zip(parts, baseline, system, strict=True)
    ]


def _outcome(baseline: Measured, system: Measured, by_chance: Samples) -> Outcome:
    difference = system.score - baseline.score
    count = int((by_chance >= abs(difference) - _TIE).sum())
    p_value = (count + 1) / (len(by_chance) + 1)
    return Outcome(metric=baseline.metric.name, difference=difference, p_value=p_value)
