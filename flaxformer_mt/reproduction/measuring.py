"""The result of a trained run: its scores, facts about its training, and the code that trained it.

The rows of the paper and the benchmarks write their results here.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flaxformer_mt.evaluation.evaluate import files_of, read_kept
from flaxformer_mt.reproduction.result_file import Result, trained_by, write_result
from flaxformer_mt.rundir.layout import RunDirectory, read_record
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.rundir.paths import read_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoredSet:
    """A run's outputs for a set, and their scores; in a result their names get a `prefix`."""

    name: str
    metrics: Mapping[str, float]
    signatures: Mapping[str, str]
    hypotheses: Sequence[str]
    prefix: str = ""

    @classmethod
    def kept(cls, run: RunDirectory, name: str, *, prefix: str = "") -> ScoredSet:
        """As the run's evaluation folder has it. Raises RunDirectoryError and ScoringError."""
        scores = read_json(files_of(run.evaluation, name).scores)
        return cls(
            name=name,
            metrics=scores["metrics"],
            signatures=scores["signatures"],
            hypotheses=read_kept(run.evaluation, name).hypotheses,
            prefix=prefix,
        )


@dataclasses.dataclass(frozen=True)
class TrainingLog:
    """What a run has reported: a run that was stopped soon may have no report of a kind."""

    reports: Sequence[Mapping[str, Any]]  # as in metrics.jsonl

    @classmethod
    def read(cls, run: RunDirectory) -> TrainingLog:
        """Raises as `read_metrics`."""
        return cls(read_metrics(run.metrics))

    @property
    def trainings(self) -> list[Mapping[str, Any]]:
        """The reports of training."""
        return [report for report in self.reports if report["kind"] == "train"]

    @property
    def validations(self) -> list[Mapping[str, Any]]:
        """The reports of validation."""
        return [report for report in self.reports if report["kind"] == "valid"]

    @property
    def seconds(self) -> float:
        """The time of training, validation included."""
        return float(self.validations[-1]["training_seconds"])

    @property
    def target_tokens_per_second(self) -> float:
        """The median of the reports of training."""
        return self._median("tgt_tokens_per_second")

    def metrics(self) -> dict[str, float]:
        """The best perplexity and the training's speed, for a result."""
        metrics: dict[str, float] = {}
        if self.validations:
            metrics["valid_perplexity"] = min(line["perplexity"] for line in self.validations)
        if self.trainings:
            metrics |= {
                "steps": self.reports[-1]["step"],
                "target_tokens_per_second": self.target_tokens_per_second,
                "data_wait": self._median("data_wait"),
            }
        return metrics

    def _median(self, name: str) -> float:
        return statistics.median(report[name] for report in self.trainings)


def training_details(*runs: RunDirectory) -> dict[str, str]:
    """For a result's details: the code that trained its runs, and when.

    The commit and the machine of a result are those of the process that scored, maybe much later.
    """
    records = [read_record(run) for run in runs]
    times = sorted(start.time for record in records for start in record.starts)
    starts = f"{len(times)} start{'' if len(times) == 1 else 's'}"
    return {
        **trained_by(*records),
        "training": f"{starts}, {' to '.join(dict.fromkeys((times[0], times[-1])))}; the machine "
        "is that of the process that scored",
    }


def write_measurement(
    path: Path,
    scored: Sequence[ScoredSet],
    *,
    command: str,
    config: str,
    seconds: float,
    metrics: Mapping[str, float],
    details: Mapping[str, str],
    release: str | None = None,
) -> Result:
    """Writes the result of a run: the scores of its sets, the test set first, and other `metrics`
    of its training. Raises ResultError."""
    scores = {
        f"{scored_set.prefix}{name}": score
        for scored_set in scored
        for name, score in scored_set.metrics.items()
    }
    return write_result(
        path,
        command=command,
        config=config,
        seconds=seconds,
        metrics={**scores, **metrics},
        signatures=scored[0].signatures,
        details=details,
        hypotheses={scored_set.name: scored_set.hypotheses for scored_set in scored},
        release=release,
    )


def measure_evaluated(
    run: RunDirectory,
    path: Path,
    *,
    command: str,
    config: str,
    test: str,
    seconds: float | None = None,
) -> Result:
    """Writes the result of a run from its log and its evaluations of `test` and "valid".

    `seconds` are those of training unless given. Raises ResultError, RunDirectoryError and
    ScoringError.
    """
    log = TrainingLog.read(run)
    return write_measurement(
        path,
        [ScoredSet.kept(run, test), ScoredSet.kept(run, "valid", prefix="valid_")],
        command=command,
        config=config,
        seconds=log.seconds if seconds is None else seconds,
        metrics=log.metrics(),
        details=training_details(run),
    )
