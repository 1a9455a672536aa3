"""Loss against target tokens seen, beside other packages: the same recipe and the same batches.

    python -m benchmarks.learning_curves --workdir DIR --data FOLDER [--peers NAME ...]
        [--tokens N] [--install | --python ENVIRONMENT=PYTHON ...]

Multi30k (FOLDER is its `data/task1/tok`) is prepared as `train` does and cut into the batches that
`train` would see first, up to so many target tokens. Each contestant makes one pass over them, with
the same sizes, dropout, label smoothing, Adam and schedule; initial values are the package's own.
The loss is the smoothed one a token, above the least that a perfect model has. A picture of both
is in docs/performance.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import RESULTS
from benchmarks.asked_process import AskedProcess
from benchmarks.peer_environments import Environments
from benchmarks.training_contest import (
    ROOT,
    Contestant,
    accelerator,
    command_of,
    write_jobs,
)
from benchmarks.training_contestants.contest import read_rows
from benchmarks.training_report import check_parameters
from benchmarks.training_speed import CONTESTANTS, add_environments, environments_of
from benchmarks.training_workloads import WORKLOADS
from flaxformer_mt.figures.canvas import rendered
from flaxformer_mt.figures.curves import RunLog, curves, panels
from flaxformer_mt.reproduction.result_file import this_machine, write_result

PICTURE = ROOT / "docs" / "learning_curves.svg"
PEERS = ("joeynmt",)  # whose loss is ours to the last constant
WINDOW = 20  # steps that a point of a curve is the mean of
SECONDS = 6 * 3600.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning_curves")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--data", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS, metavar="NAME")
    parser.add_argument("--tokens", type=int, default=1_500_000, metavar="N", help="target tokens")
    add_environments(parser)
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    parser.add_argument("--picture", type=Path, default=PICTURE, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    machine = this_machine(accelerator())
    environments = environments_of(options, parser)
    names = ("ours", *options.peers)
    folder = options.workdir
    folder.mkdir(parents=True, exist_ok=True)
    jobs = write_jobs(
        WORKLOADS["multi30k"].of_corpus(options.data),
        folder,
        {name: CONTESTANTS[name] for name in names},
        tokens=options.tokens,
    )
    tokens = np.cumsum([rows.tgt_tokens for rows in read_rows(str(folder / "batches.npz"))])
    step_losses, setups = {}, {}
    for name in names:
        step_losses[name], setups[name] = losses(
            name, CONTESTANTS[name], folder, environments, jobs.parameters
        )
    metrics, signatures = table(tokens, step_losses, setups)
    write_result(
        options.result / "learning_curves.json",
        command="python -m benchmarks.learning_curves --workdir DIR --data FOLDER --install"
        + (f" --tokens {options.tokens}" if options.tokens != 1_500_000 else ""),
        config=WORKLOADS["multi30k"].experiment,
        machine=machine,
        seconds=time.perf_counter() - begin,
        metrics=metrics,
        signatures=signatures,
    )
    runs = [curve(name, tokens, step_losses[name]) for name in names]
    picture = rendered(curves(runs, panels(runs, ["loss"]), axis="tokens"), "svg")
    options.picture.write_bytes(picture)
    print(json.dumps(metrics, indent=2))
    return 0


def losses(
    name: str,
    contestant: Contestant,
    folder: Path,
    environments: Environments,
    parameters: int,
) -> tuple[list[float], str]:
    """The loss of every step, and how the contestant was set up.

    Raises ProcessFailed, EnvironmentMissing and Disqualified.
    """
    print(f"{name}: its steps are told in {folder / f'{name}.log'}", file=sys.stderr, flush=True)
    command = command_of(contestant, environments, folder / f"{name}.json")
    with AskedProcess(command, log=folder / f"{name}.log", folder=ROOT) as process:
        ready = process.answer(seconds=SECONDS)
        check_parameters(name, ready["parameters"], parameters)
        answer = process.ask("learn", seconds=SECONDS)
    return [ready["loss"], *answer["losses"]], ready["setup"]


def table(
    tokens: np.ndarray, step_losses: Mapping[str, Sequence[float]], setups: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, str]]:
    """Losses after each third of the tokens (means of the last steps), and how far peers lag."""
    metrics: dict[str, float] = {"steps": len(tokens), "target_tokens": int(tokens[-1])}
    signatures: dict[str, str] = {}
    for third in (1, 2, 3):
        until = int(np.searchsorted(tokens, tokens[-1] * third / 3)) + 1
        first = max(until - WINDOW, 0)
        for name, contestant_losses in step_losses.items():
            key = f"{name}_loss_after_{third}_thirds"
            metrics[key] = float(np.mean(contestant_losses[first:until]))
            signatures[key] = setups[name]
    for name in step_losses:
        if name != "ours":
            metrics[f"loss_below_{name}"] = (
                metrics[f"{name}_loss_after_3_thirds"] - metrics["ours_loss_after_3_thirds"]
            )
    return metrics, signatures


def curve(name: str, tokens: np.ndarray, step_losses: Sequence[float]) -> RunLog:
    """A contestant's losses as the figures draw a run's: means of `WINDOW` steps."""
    steps = len(step_losses)
    ends: np.ndarray = np.arange(min(WINDOW, steps), steps + 1, WINDOW)
    means = np.array([np.mean(step_losses[max(end - WINDOW, 0) : end]) for end in ends])
    train = {
        "steps": ends.astype(np.float64),
        "tokens": tokens[ends - 1].astype(np.float64),
        "hours": np.full(len(ends), np.nan),
        "loss": means,
    }
    return RunLog(name=name, state=f"{steps:,} steps", series={"train": train, "valid": {}})


if __name__ == "__main__":
    sys.exit(main())
