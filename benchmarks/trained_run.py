"""Trains a run from a config, and writes its result."""

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import RESULTS
from flaxformer_mt.cli import average, evaluate, train
from flaxformer_mt.cli.arguments import take_overrides
from flaxformer_mt.config import load_config
from flaxformer_mt.data.corpus import read_pairs
from flaxformer_mt.errors import STOPPED
from flaxformer_mt.evaluation.evaluate import read_kept
from flaxformer_mt.reproduction.result_file import Result, trained_by, write_result
from flaxformer_mt.rundir.layout import RunDirectory, open_run, read_record
from flaxformer_mt.rundir.metrics_log import read_metrics


def trained(
    workdir: str | Path,
    spec: str,
    overrides: Sequence[str],
    *,
    benchmark: str,
    seconds: float | None = None,
) -> RunDirectory:
    """Trains, or continues, and averages. Leaves the program where training was stopped.

    With `seconds` training is stopped after these, and nothing is averaged.
    """
    with contextlib.nullcontext() if seconds is None else stopped_after(seconds):
        status = train.train_run(str(workdir), spec, overrides, [benchmark, spec])
    if status and (seconds is None or status != STOPPED):
        raise SystemExit(status)
    run = open_run(workdir)
    if seconds is None:
        average.main(["--workdir", str(run)], "average", "")
    return run


@contextlib.contextmanager
def stopped_after(seconds: float) -> Iterator[None]:
    """Stops training in this block as a cluster does, but not the preparations before its steps."""
    ended = threading.Event()

    def ask_to_stop() -> None:
        # Again and again: only training listens.
        if not ended.wait(seconds):
            while not ended.wait(0.2):
                os.kill(os.getpid(), signal.SIGTERM)

    handler = signal.signal(signal.SIGTERM, lambda *_: None)
    thread = threading.Thread(target=ask_to_stop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGTERM, handler)


def train_and_score(
    spec: str,
    tests: Sequence[tuple[str, str]],
    arguments: Sequence[str] | None,
    *,
    benchmark: str,
) -> int:
    """A command: trains a config on a corpus, averages, scores, records, and prints the scores.

    `tests` are pairs of a test corpus of the config and the name of its result. They decide
    nothing. Continues a stopped run; on a finished one it only scores. With `--seconds` the newest
    weights are scored, no average. Raises ResultError, and CorpusError for a test corpus that
    cannot be read, before anything is trained.
    """
    start = time.perf_counter()
    options, overrides = _parse(tests, arguments, benchmark)
    data, seconds = options.data, options.seconds
    command = f"python -m {benchmark} --data FOLDER --workdir DIR"
    command += "" if seconds is None else f" --seconds {seconds:.0f}"
    command += "" if len(options.sets) == len(tests) else f" --sets {' '.join(options.sets)}"
    command += "".join(f" --config.{override}" for override in overrides)

    tests = [(test, name) for test, name in tests if test in options.sets]
    _check_readable(spec, [test for test, _ in tests], data)
    overrides = [f"data.folder={data}", *overrides]
    run = trained(options.workdir, spec, overrides, benchmark=benchmark, seconds=seconds)
    scored = ["--workdir", str(run)]
    evaluate.main([*scored, "--set", "valid"], "evaluate", "")
    for test, name in tests:
        evaluate.main([*scored, "--set", test, "--folder", data], "evaluate", "")
        result = record(
            run,
            options.result / f"{name}.json",
            command=command,
            config=spec,
            test=test,
            seconds=None if seconds is None else time.perf_counter() - start,
        )
        print(json.dumps(dict(result.metrics), indent=2))
    return 0


def _parse(
    tests: Sequence[tuple[str, str]], arguments: Sequence[str] | None, benchmark: str
) -> tuple[argparse.Namespace, list[str]]:
    flags, overrides = take_overrides(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog=f"python -m {benchmark}", epilog="--config.KEY=VALUE changes a setting, as in `train`"
    )
    parser.add_argument("--data", required=True, metavar="FOLDER", help="the corpus")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="run directory")
    parser.add_argument("--seconds", type=float, metavar="N", help="stop training after these")
    parser.add_argument(
        "--sets", nargs="+", choices=dict(tests), default=dict(tests), metavar="NAME",
        help=f"the test sets that are scored (default: {' '.join(dict(tests))})",
    )  # fmt: skip
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    return parser.parse_args(flags), overrides


def _check_readable(spec: str, tests: Sequence[str], data: str) -> None:
    """Reads the test corpora to their ends. Raises CorpusError."""
    corpora = {corpus.name: corpus for corpus in load_config(spec).data.test}
    for test in tests:
        for _ in read_pairs(corpora[test], data, key=f"data.test.{test}"):
            pass


def seconds_trained(run: RunDirectory) -> float:
    """The time of training, validation included."""
    validations = [line for line in read_metrics(run.metrics) if line["kind"] == "valid"]
    return float(validations[-1]["training_seconds"])


def training_metrics(run: RunDirectory) -> dict[str, float]:
    """A result's metrics of the training itself."""
    reports = read_metrics(run.metrics)
    training = [line for line in reports if line["kind"] == "train"]
    validations = [line for line in reports if line["kind"] == "valid"]
    metrics: dict[str, float] = {}
    if validations:  # a run that was stopped soon may have neither
        metrics["valid_perplexity"] = min(line["perplexity"] for line in validations)
    if training:
        metrics |= {
            "steps": reports[-1]["step"],
            "target_tokens_per_second": statistics.median(
                line["tgt_tokens_per_second"] for line in training
            ),
            "data_wait": statistics.median(line["data_wait"] for line in training),
        }
    return metrics


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


def record(
    run: RunDirectory,
    path: Path,
    *,
    command: str,
    config: str,
    test: str,
    seconds: float | None = None,
) -> Result:
    """Writes a result from a run's metrics and its evaluations of `test` and `valid`.

    `seconds` are those of training unless given. Raises ResultError.
    """
    scores = json.loads((run.evaluation / f"{test}.json").read_text(encoding="utf-8"))
    valid = json.loads((run.evaluation / "valid.json").read_text(encoding="utf-8"))
    return write_result(
        path,
        command=command,
        config=config,
        seconds=seconds_trained(run) if seconds is None else seconds,
        metrics={
            **scores["metrics"],
            **{f"valid_{metric}": score for metric, score in valid["metrics"].items()},
            **training_metrics(run),
        },
        signatures=scores["signatures"],
        details=training_details(run),
        hypotheses={name: read_kept(run.evaluation, name).hypotheses for name in (test, "valid")},
    )
