"""From a config to a trained run directory, and from that to the one form of a result."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.result_file import RESULTS, Result, write_result
from flaxformer_mt.cli import average, train
from flaxformer_mt.reproduction.provenance import trained_by
from flaxformer_mt.rundir.layout import RunDirectory, open_run, read_record
from flaxformer_mt.rundir.metrics_log import read_metrics


def trained(
    workdir: str | Path, spec: str, overrides: Sequence[str], *, benchmark: str
) -> RunDirectory:
    """Trains, or continues, and averages. Leaves the program where training was stopped."""
    status = train.train_run(str(workdir), spec, overrides, [benchmark, spec])
    if status:
        raise SystemExit(status)
    run = open_run(workdir)
    average.main(["--workdir", str(run)], "average", "")
    return run


def seconds_trained(run: RunDirectory) -> float:
    """The time of training, validation included."""
    validations = [line for line in read_metrics(run.metrics) if line["kind"] == "valid"]
    return float(validations[-1]["training_seconds"])


def training_metrics(run: RunDirectory) -> dict[str, float]:
    """What a result says of the training itself."""
    reports = read_metrics(run.metrics)
    training = [line for line in reports if line["kind"] == "train"]
    validations = [line for line in reports if line["kind"] == "valid"]
    return {
        "valid_perplexity": min(line["perplexity"] for line in validations),
        "steps": validations[-1]["step"],
        "target_tokens_per_second": statistics.median(
            line["tgt_tokens_per_second"] for line in training
        ),
        "data_wait": statistics.median(line["data_wait"] for line in training),
    }


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


def record(run: RunDirectory, *, name: str, command: str, config: str, test: str) -> Result:
    """Writes `results/NAME.json` from a run's metrics and its evaluations of `test` and `valid`.

    Raises ResultError.
    """
    scores = json.loads((run.evaluation / f"{test}.json").read_text(encoding="utf-8"))
    valid = json.loads((run.evaluation / "valid.json").read_text(encoding="utf-8"))
    return write_result(
        RESULTS / f"{name}.json",
        command=command,
        config=config,
        seconds=seconds_trained(run),
        metrics={
            **scores["metrics"],
            **{f"valid_{metric}": value for metric, value in valid["metrics"].items()},
            **training_metrics(run),
        },
        signatures=scores["signatures"],
        details=training_details(run),
    )
