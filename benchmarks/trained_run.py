"""From a trained and evaluated run directory to the one form of a result."""

from __future__ import annotations

import json
import statistics

from benchmarks.result_file import RESULTS, Result, write_result
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.metrics_log import read_metrics


def record(run: RunDirectory, *, name: str, command: str, config: str, test: str) -> Result:
    """Writes `results/NAME.json` from a run's metrics and its evaluations of `test` and `valid`.

    `seconds` is the time of training, validation included. Raises ResultError.
    """
    scores = json.loads((run.evaluation / f"{test}.json").read_text(encoding="utf-8"))
    valid = json.loads((run.evaluation / "valid.json").read_text(encoding="utf-8"))
    reports = read_metrics(run.metrics)
    training = [line for line in reports if line["kind"] == "train"]
    validations = [line for line in reports if line["kind"] == "valid"]
    return write_result(
        RESULTS / f"{name}.json",
        command=command,
        config=config,
        seconds=validations[-1]["training_seconds"],
        metrics={
            **scores["metrics"],
            **{f"valid_{metric}": value for metric, value in valid["metrics"].items()},
            "valid_perplexity": min(line["perplexity"] for line in validations),
            "steps": validations[-1]["step"],
            "target_tokens_per_second": statistics.median(
                line["tgt_tokens_per_second"] for line in training
            ),
            "data_wait": statistics.median(line["data_wait"] for line in training),
        },
        signatures=scores["signatures"],
    )
