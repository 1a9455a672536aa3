"""Trains a run from a config, and writes its result."""

import argparse
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import flaxformer_mt as fm
from benchmarks import RESULTS
from benchmarks.arguments import SETTINGS_HELP, parse_with_settings
from flaxformer_mt.config import read_config
from flaxformer_mt.data.corpus import read_pairs
from flaxformer_mt.errors import STOPPED
from flaxformer_mt.reproduction.measuring import measure_evaluated
from flaxformer_mt.rundir.layout import RunDirectory, open_run


def trained(
    workdir: str | Path,
    spec: str,
    settings: Mapping[str, object],
    *,
    benchmark: str,
    seconds: float | None = None,
) -> RunDirectory:
    """Trains, or continues, and averages. Leaves the program where training was stopped.

    With `seconds` training is stopped after these, and nothing is averaged.
    """
    with contextlib.nullcontext() if seconds is None else stopped_after(seconds):
        status = fm.train(fm.load_config(spec, settings), workdir, command=[benchmark, spec])
    if status.state == "stopped" and seconds is None:
        raise SystemExit(STOPPED)
    run = open_run(workdir)
    if seconds is None:
        fm.average(run)
    return run


def evaluated(
    run: RunDirectory,
    name: str,
    *,
    translator: fm.Translator | None = None,
    folder: str | None = None,
) -> None:
    """Scores one of the run's sets, in its evaluation folder, and prints the scores."""
    for evaluation in fm.evaluate(run, name, translator=translator, folder=folder).values():
        print(f"{name}: {evaluation.scores.one_line()}\n\n{evaluation.assessment.table()}\n")


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
    afterwards: Callable[[RunDirectory], None] = lambda run: None,
) -> int:
    """A command: trains a config on a corpus, averages, scores, records, and prints the scores.

    `tests` are pairs of a test corpus of the config and the name of its result. They decide
    nothing. Continues a stopped run; on a finished one it only scores. With `--seconds` the newest
    weights are scored, no average. `afterwards` gets the run at the end. Raises ResultError, and
    CorpusError for a test corpus that cannot be read, before anything is trained.
    """
    start = time.perf_counter()
    options, changes = _parse(tests, arguments, benchmark)
    data, seconds = options.data, options.seconds
    command = f"python -m {benchmark} --data FOLDER --workdir DIR"
    command += "" if seconds is None else f" --seconds {seconds:.0f}"
    command += "" if len(options.sets) == len(tests) else f" --sets {' '.join(options.sets)}"
    command += "".join(f" --config.{key}={value}" for key, value in changes.items())

    tests = [(test, name) for test, name in tests if test in options.sets]
    _check_readable(spec, [test for test, _ in tests], data)
    settings = {"data.folder": data, **changes}
    run = trained(options.workdir, spec, settings, benchmark=benchmark, seconds=seconds)
    evaluated(run, "valid")
    for test, name in tests:
        evaluated(run, test, folder=data)
        result = measure_evaluated(
            run,
            options.result / f"{name}.json",
            command=command,
            config=spec,
            test=test,
            seconds=None if seconds is None else time.perf_counter() - start,
        )
        print(json.dumps(dict(result.metrics), indent=2))
    afterwards(run)
    return 0


def _parse(
    tests: Sequence[tuple[str, str]], arguments: Sequence[str] | None, benchmark: str
) -> tuple[argparse.Namespace, dict[str, str]]:
    parser = argparse.ArgumentParser(prog=f"python -m {benchmark}", epilog=SETTINGS_HELP)
    parser.add_argument("--data", required=True, metavar="FOLDER", help="the corpus")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="run directory")
    parser.add_argument("--seconds", type=float, metavar="N", help="stop training after these")
    parser.add_argument(
        "--sets", nargs="+", choices=dict(tests), default=dict(tests), metavar="NAME",
        help=f"the test sets that are scored (default: {' '.join(dict(tests))})",
    )  # fmt: skip
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    return parse_with_settings(parser, arguments)


def _check_readable(spec: str, tests: Sequence[str], data: str) -> None:
    """Reads the test corpora to their ends. Raises CorpusError."""
    corpora = {corpus.name: corpus for corpus in read_config(spec).data.test}
    for test in tests:
        for _ in read_pairs(corpora[test], data, key=f"data.test.{test}"):
            pass
