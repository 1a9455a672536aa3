"""One of several processes: trains the runs of a plan one after the other, and says how they ended.

A program of its own, which `test_several_processes` starts: many runs for one start of Python.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import numpy as np

from flaxformer_mt.cli.train import train_run
from flaxformer_mt.config import MeshConfig
from flaxformer_mt.diagnosis import step
from flaxformer_mt.parallel.mesh import (
    batch_sharding,
    local_mesh,
    make_mesh,
    place_batch,
    place_whole,
    whole_on,
)
from flaxformer_mt.parallel.processes import Cluster, ProcessError, Processes, joined


def stop_after(checkpoint: Path) -> None:
    """A SIGTERM for this process once that checkpoint is there."""

    def wait() -> None:
        while not checkpoint.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def together(processes: Processes) -> dict[str, Any]:
    """What the processes tell each other."""
    number = processes.number
    text = "ä" * 3_000_000  # more than fits into one message of gRPC by default

    def fail() -> None:
        raise LookupError("no such thing\nand more")

    placed(processes)
    try:
        processes.first(fail)
        failure = ""
    except (LookupError, ProcessError) as error:
        failure = f"{type(error).__name__}: {error}"
    return {
        "first": processes.first(lambda: {"of": number, "value": 0.1}),
        "failure": failure,
        "gathered": [len(part[0]) for part in processes.gather([text + str(number)])],
        "largest": [
            int(jax.device_get(processes.ask(value))) for value in (0, number, 10 - number, 0)
        ],
    }


def placed(processes: Processes) -> None:
    """Rows of an array lie with the processes that have them, and come back whole."""
    rows, mesh = np.arange(8, dtype=np.int32).reshape(8, 1), make_mesh(MeshConfig())
    local = place_batch(np.split(rows, processes.count)[processes.number], mesh)
    for array in (local, place_whole(rows, batch_sharding(mesh))):
        assert array.sharding == batch_sharding(mesh)
        collected = whole_on({"rows": array}, local_mesh())["rows"]
        assert collected.sharding.mesh == local_mesh() and (np.asarray(collected) == rows).all()
    # What `doctor` compares an accelerator with.
    with mock.patch.object(step, "compared", lambda *arguments: arguments[-1]):
        assert next(step.check_step(SimpleNamespace(platform="tpu"))) in jax.local_devices()


def one_run(job: dict[str, Any], processes: Processes) -> Any:
    if job["workdir"] is None:
        return together(processes)
    if job.get("stop_process") == processes.number:
        stop_after(Path(job["workdir"]) / "checkpoints" / str(job["stop_after"]))
    try:
        return train_run(
            job["workdir"],
            job["config"],
            job["overrides"],
            ["a test"],
            job.get("init_from"),
            processes=processes,
            profile=job.get("profile"),
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main(coordinator: str, count: str, number: str, plan: str, answers: str) -> None:
    jobs = json.loads(Path(plan).read_text())
    failing = [job.pop("fails") for job in jobs if "fails" in job]
    cluster = Cluster(coordinator, int(count), int(number)) if coordinator else None
    with joined(cluster, **{"heartbeat": 5} if failing else {}) as processes:
        outcomes = [one_run(job, processes) for job in jobs if job]
        (Path(answers) / f"{processes.number}.json").write_text(json.dumps(outcomes))
        if processes.number in failing:
            raise LookupError("only here")
        if failing:
            processes.gather([])


if __name__ == "__main__":
    main(*sys.argv[1:])
