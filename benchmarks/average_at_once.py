"""Averages a run from many processes at once while others read it, and counts failures.

    python -m benchmarks.average_at_once --workdir DIR [--calls 16] [--reads 5000]

Two processes call `average` in turns with different numbers of checkpoints until two others have
loaded the average often enough. Every load must give the mean of the steps in its name, complete:
`damaged` counts errors, `other` weights that belong to another name.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 64
STEPS = (1, 2, 3)
READERS = WRITERS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.average_at_once")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR", help="new folder")
    parser.add_argument("--calls", type=int, default=16, metavar="N", help="at least so many")
    parser.add_argument("--reads", type=int, default=5000, metavar="N", help="by all readers")
    options = parser.parse_args(arguments)
    processes = multiprocessing.get_context("spawn")
    with processes.Pool(1) as pool:  # JAX's threads wouldn't survive a fork
        pool.apply(make_run, (str(options.workdir),))

    begin = time.perf_counter()
    with processes.Manager() as manager, processes.Pool(READERS + WRITERS) as pool:
        readers_done = manager.Event()
        folder = str(options.workdir)
        writers = [
            pool.apply_async(write, (folder, number, options.calls // WRITERS, readers_done))
            for number in range(WRITERS)
        ]
        reads = [options.reads // READERS] * READERS
        readers = pool.starmap_async(read, [(folder, count) for count in reads])
        read_results = readers.get()
        readers_done.set()
        results: dict[str, Any] = {
            **summed(read_results),
            **summed([writer.get() for writer in writers]),
            "seconds": round(time.perf_counter() - begin, 1),
        }
    print(json.dumps(results))
    return 1 if results["damaged"] or results["other"] or results["failed_calls"] else 0


def make_run(folder: str) -> None:
    """Makes a run of three checkpoints, whose parameters all equal their step, and an average."""
    import flaxformer_mt as fm
    from flaxformer_mt.config import ExperimentConfig, TrainingConfig, to_dict
    from flaxformer_mt.rundir import layout
    from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot

    run = layout.create(folder, to_dict(ExperimentConfig()), ["average_at_once"])
    with Checkpoints(run.checkpoints, TrainingConfig(keep_for_average=len(STEPS))) as checkpoints:
        for step in STEPS:
            params = {
                f"layer_{n}": {"kernel": np.full((WIDTH, WIDTH), step, np.float32)}
                for n in range(4)
            }
            checkpoints.save(Snapshot(step=step, params=params, opt_state={}, position={}))
    fm.average(folder, last=1)


def write(folder: str, number: int, calls: int, readers_done: Event) -> dict[str, int]:
    """Averages at least so often, and until `readers_done`."""
    import flaxformer_mt as fm

    count = failed = 0
    while count < calls or not readers_done.is_set():
        count += 1
        try:
            fm.average(folder, last=1 + (number + count) % len(STEPS))
        except Exception as error:  # any error counts
            print(f"average: {error!r}", file=sys.stderr)
            failed += 1
    return {"calls": count, "failed_calls": failed}


def read(folder: str, count: int) -> dict[str, int]:
    """Loads so often the weights that `translate` would."""
    from flaxformer_mt.rundir.layout import RunDirectory
    from flaxformer_mt.rundir.weights import load_chosen

    run = RunDirectory(Path(folder))
    damaged = mismatched = 0
    for _ in range(count):
        try:
            chosen, params = load_chosen(run, "auto")
        except Exception as error:  # any error counts
            print(f"read: {error!r}", file=sys.stderr)
            damaged += 1
            continue
        steps = [int(step) for step in chosen.name.removeprefix("average of steps ").split(", ")]
        mean = np.float32(np.mean(steps))
        mismatched += not all(np.all(layer["kernel"] == mean) for layer in params.values())
    return {"reads": count, "damaged": damaged, "other": mismatched}


def summed(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {name: sum(process[name] for process in counts) for name in counts[0]}


if __name__ == "__main__":
    sys.exit(main())
