"""Systems side by side on one test set, with tests of their differences from the first."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

from flaxformer_mt.evaluation.metrics import ScoringError
from flaxformer_mt.evaluation.scoring import Assessment, Scoring, assess
from flaxformer_mt.evaluation.significance import (
    TRIALS,
    Method,
    Outcome,
    approximate_randomization,
    paired_bootstrap,
)
from flaxformer_mt.evaluation.systems import System
from flaxformer_mt.text_table import aligned

METHODS: tuple[Method, ...] = get_args(Method)
SIGNIFICANT = 0.05
_COLUMNS: dict[Method, list[str]] = {
    "bootstrap": ["its 95% interval", "better in", "p (bootstrap)"],
    "randomization": ["p (randomization)"],
}
_LEGEND = f"""\
* p (randomization) below {SIGNIFICANT}. Differences are from the first system; "better in" is the
  share of the resampled test sets in which the system beats it. p is how often chance alone makes a
  difference of this size. Randomization's counts both directions, bootstrap's (sacreBLEU's) one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compared:
    """One system's scores and, by method and metric, its tests against the baseline, if not it."""

    name: str
    assessment: Assessment
    tests: Mapping[Method, Mapping[str, Outcome]]

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {"name": self.name, **self.assessment.to_json()}
        if self.tests:
            content["against_baseline"] = {
                method: {metric: test.to_json() for metric, test in found.items()}
                for method, found in self.tests.items()
            }
        return content


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """What `compare` found. The first system is the baseline."""

    systems: tuple[Compared, ...]
    methods: tuple[Method, ...]
    scoring: Scoring
    trials: int

    def to_json(self) -> dict[str, Any]:
        """Plain JSON: each system's scores, and the tests of each but the first."""
        return {
            "baseline": self.systems[0].name,
            "seed": self.scoring.seed,
            "resamples": self.scoring.resamples,
            "trials": self.trials,
            "systems": [system.to_json() for system in self.systems],
        }

    def table(self) -> str:
        """For people: a block a metric, and what its columns mean."""
        metrics = self.systems[0].assessment.scores.metrics
        return "\n\n".join([*map(self._block, metrics), _LEGEND])

    def _block(self, metric: str) -> str:
        header = [metric, "score", "95% interval", "difference"]
        header += [column for method in self.methods for column in _COLUMNS[method]]
        rows = []
        for system in self.systems:
            spread = system.assessment.intervals.get(metric)
            tests = {method: found[metric] for method, found in system.tests.items()}
            differences = [f"{test.difference:+.2f}" for test in tests.values()]
            rows.append(
                [
                    system.name,
                    f"{system.assessment.scores.metrics[metric]:.2f}",
                    f"{spread.low:.2f} to {spread.high:.2f}" if spread else "-",
                    differences[0] if differences else "-",
                    *(cell for method in self.methods for cell in _cells(method, tests)),
                ]
            )
        signature = self.systems[0].assessment.scores.signatures[metric]
        return f"{aligned(header, rows)}\n{signature}"


def compare(
    systems: Sequence[System],
    references: Sequence[str],
    *,
    sources: Sequence[str] | None = None,
    scoring: Scoring | None = None,
    methods: Collection[Method] = METHODS,
    trials: int = TRIALS,
) -> Comparison:
    """Scores every system and tests each but the first against it, metric by metric.

    Raises ScoringError: fewer than two systems, a name twice, no resamples, sides not aligned.
    """
    scoring = scoring or Scoring()
    names = [system.name for system in systems]
    if len(names) < 2:
        raise ScoringError("a comparison takes two systems or more")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ScoringError(f"two systems are called {twice[0]}: write NAME=PATH for one of them")
    for method, name, draws in (
        ("bootstrap", "resamples", scoring.resamples),
        ("randomization", "trials", trials),
    ):
        if method in methods and draws < 1:
            raise ScoringError(f"{name} must be at least 1: {method} is made of them")
    assessed = []
    for system in systems:
        try:
            found = assess(system.hypotheses, references, sources=sources, scoring=scoring)
        except ScoringError as error:
            raise ScoringError(f"{system.name}: {error}") from error
        assessed.append(found)
    first, chosen = assessed[0], tuple(method for method in METHODS if method in methods)
    compared = [Compared(name=names[0], assessment=first, tests={})]
    for name, other in zip(names[1:], assessed[1:], strict=True):
        tests = {method: _test(method, first, other, trials) for method in chosen}
        compared.append(Compared(name=name, assessment=other, tests=tests))
    return Comparison(systems=tuple(compared), methods=chosen, scoring=scoring, trials=trials)


def _test(
    method: Method, baseline: Assessment, system: Assessment, trials: int
) -> dict[str, Outcome]:
    pair, seed = (baseline.measured, system.measured), baseline.scoring.seed
    if method == "bootstrap":
        found = paired_bootstrap(*pair, samples=baseline.scoring.resamples, seed=seed)
    else:
        found = approximate_randomization(*pair, trials=trials, seed=seed)
    return {test.metric: test for test in found}


def _cells(method: Method, tests: Mapping[Method, Outcome]) -> list[str]:
    if method not in tests:
        return ["-"] * len(_COLUMNS[method])
    test = tests[method]
    # The bootstrap's p is one-sided and calls too many equal systems different.
    star = method == "randomization" and test.p_value < SIGNIFICANT
    cells = [f"{test.p_value:.4f}{'*' if star else ' '}"]
    if test.interval is not None:
        cells.insert(0, f"{test.interval.low:+.2f} to {test.interval.high:+.2f}")
        cells.insert(1, f"{test.better:.1%}")
    return cells
