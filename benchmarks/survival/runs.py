"""The small run that is disturbed, started as a user starts it, and a comparison of two of them."""

import dataclasses
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from flaxformer_mt.rundir import checkpoint_format
from flaxformer_mt.rundir.digests import tree_digest
from flaxformer_mt.rundir.layout import open_run
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.rundir.weights import load_params
from flaxformer_mt.training.telemetry import TIMES

STEPS = 400
SAVE_EVERY = 20
HEARTBEAT = 10  # seconds

# The built-in grammar with a model so small that a step takes milliseconds.
SETTINGS = {
    "data.train.grammar.size": 12_000,
    "data.valid.size": 50,
    "data.vocabulary.size": 500,
    "data.batch.tokens": 1024,
    "data.batch.max_shapes": 2,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.d_model": 64,
    "model.d_ff": 128,
    "model.num_heads": 2,
    "model.dropout": 0.1,
    "training.steps": STEPS,
    "training.save_every": SAVE_EVERY,
    "training.validate_every": 0,
    "training.validate_bleu": "false",
    "training.best_metric": "loss",
    "training.log_every": 10,
    "training.schedule.warmup_steps": 100,
}


def train_arguments(workdir: Path) -> list[str]:
    settings = [f"--config.{key}={setting}" for key, setting in SETTINGS.items()]
    return ["train", "--config", "quickstart", "--workdir", str(workdir), *settings]


class Group:
    """`train` in one or several processes, with a log of each."""

    def __init__(self, workdir: Path, count: int, said: Path) -> None:
        flags: list[str] = []
        if count > 1:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                flags = ["--coordinator", f"127.0.0.1:{probe.getsockname()[1]}"]
            flags += ["--num-processes", str(count), "--heartbeat", str(HEARTBEAT)]
        said.mkdir(parents=True, exist_ok=True)
        self.files = [said / f"{number}.txt" for number in range(count)]
        self.processes = []
        for number, file in enumerate(self.files):
            process_id = ["--process-id", str(number)] if count > 1 else []
            with file.open("w") as stream:
                command = [sys.executable, "-m", "flaxformer_mt"]
                process = subprocess.Popen(
                    [*command, *train_arguments(workdir), *flags, *process_id],
                    stdout=subprocess.DEVNULL,  # where Gloo greets
                    stderr=stream,
                    env=os.environ | {"JAX_PLATFORMS": "cpu"},
                )
            self.processes.append(process)

    @property
    def running(self) -> bool:
        return all(process.poll() is None for process in self.processes)

    def wait(self, seconds: float) -> list[int]:
        """Exit statuses after all have ended. Raises subprocess.TimeoutExpired: one hangs."""
        try:
            return [process.wait(timeout=seconds) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
                process.wait()

    def said(self) -> str:
        """All logs; the first process writes its own once all have connected."""
        return "\n".join(file.read_text(errors="replace") for file in self.files)


@dataclasses.dataclass(frozen=True)
class Ending:
    """The parts of a run's end that must be equal, whatever happened to it on the way."""

    leaves: dict[str, Any]  # digest of every parameter and moment, as saved
    params: dict[str, str]  # digests of the parameters, as read back
    position: dict[str, Any]  # of the data, and what decisions were made, without times
    reports: list[dict[str, Any]]


def ending(workdir: Path, *, step: int = STEPS) -> Ending:
    """Of a finished run; raises RunDirectoryError and CheckpointError where it is not whole."""
    run = open_run(workdir)
    folder = run.checkpoints / str(step)
    meta = checkpoint_format.read_meta(folder)
    progress = checkpoint_format.read_document(folder, meta, "position")
    reports = [
        {key: report[key] for key in report if key not in TIMES}
        for report in read_metrics(run.metrics)
    ]
    return Ending(
        leaves=meta["leaves"],
        params=tree_digest(load_params(run, step)),
        position={key: progress[key] for key in progress if key not in ("seconds", "window")},
        reports=reports,
    )
