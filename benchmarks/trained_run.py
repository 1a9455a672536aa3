"""From a config to a trained run directory, and from that to the one form of a result."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.result_file import RESULTS, Result, write_result
from flaxformer_mt.cli import average, evaluate, train
from flaxformer_mt.config import load_config
from flaxformer_mt.data.corpus import read_pairs
from flaxformer_mt.evaluation.kept import read_kept
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


def train_and_score(
    spec: str,
    tests: Sequence[tuple[str, str]],
    arguments: Sequence[str] | None,
    *,
    benchmark: str,
) -> int:
    """A command: trains a config on a corpus, averages, scores, records, and prints the scores.

    `tests` are pairs of a test corpus of the config and the name of its result. They decide
    nothing. Continues a stopped run; on a finished one it only scores. Raises ResultError, and
    CorpusError for a test corpus that cannot be read, before anything is trained.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {benchmark}")
    parser.add_argument("--data", required=True, metavar="FOLDER", help="the corpus")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="run directory")
    options = parser.parse_args(arguments)
    data, workdir = options.data, options.workdir
    corpora = {corpus.name: corpus for corpus in load_config(spec).data.test}
    for test, _ in tests:
        for _ in read_pairs(corpora[test], data, key=f"data.test.{test}"):
            pass
    run = trained(workdir, spec, [f"data.folder={data}"], benchmark=benchmark)
    how = ["--workdir", str(run)]
    evaluate.main([*how, "--set", "valid"], "evaluate", "")
    for test, name in tests:
        evaluate.main([*how, "--set", test, "--folder", data], "evaluate", "")
        result = record(
            run,
            name=name,
            command=f"python -m {benchmark} --data FOLDER --workdir DIR",
            config=spec,
            test=test,
        )
        print(json.dumps(dict(result.metrics), indent=2))
    return 0


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
        hypotheses={of: read_kept(run.evaluation, of).hypotheses for of in (test, "valid")},
    )
