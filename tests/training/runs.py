"""Whole runs of the loop in a folder: real checkpoints, log and pipeline, every batch recorded."""

import contextlib
import dataclasses
import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flaxformer_mt.data.batch import Batch
from flaxformer_mt.data.planner import Planner, planned_pass
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.parallel.processes import StopRequest
from flaxformer_mt.rundir.checkpoint_choice import select_step
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot, read_snapshot
from flaxformer_mt.rundir.layout import RunDirectory, Status
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.training.instruments import Goodput, Profiler
from flaxformer_mt.training.loop import TimeLimit, Training
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.step import TrainState, with_params
from flaxformer_mt.training.telemetry import TIMES, Telemetry
from flaxformer_mt.training.trackers import Trackers
from flaxformer_mt.training.validation import Evaluator, loss_evaluator
from tests.conftest import Killed as Killed
from tests.training.examples import program, random_pairs, tiny

TRAIN, VALID = random_pairs(60), random_pairs(6, seed=1)


@dataclasses.dataclass
class Run:
    """One experiment in `folder`, started as often as a test likes."""

    folder: Path
    changes: Mapping[str, Any]
    on: Program = dataclasses.field(default_factory=program)
    train_pairs: TokenPairs = TRAIN
    valid_pairs: TokenPairs = VALID
    decode: Evaluator | None = None
    batches: list[Batch] = dataclasses.field(default_factory=list)
    """Every batch that was trained on, in order."""
    goodput: Goodput = dataclasses.field(default_factory=Goodput)
    """Where the time of all starts went."""
    clock: Callable[[], float] = time.perf_counter
    """By which that time is told."""
    shown: str = ""
    """What the last start has printed."""

    def start(
        self,
        *,
        stop_after: int | None = None,
        kill_after: int | None = None,
        initial_params: Callable[[], Any] | None = None,
        profiler: Profiler | None = None,
        seconds: float | None = None,
    ) -> Status:
        """Trains until the end, or until a signal or a kill arrives with that step dispatched, or
        for so many `seconds`."""
        config = tiny(self.changes)
        self.goodput = Goodput(clock=self.clock)
        self.goodput.keep_in(self.folder / "goodput.json", print)
        self.stop = stop = StopRequest()
        screen = io.StringIO()

        def train_step(state: Any, batch: Batch) -> Any:
            self.batches.append(batch)
            if kill_after is not None and int(state.step) == kill_after:
                raise Killed
            if stop_after is not None and int(state.step) + 1 == stop_after:
                stop.received = "SIGTERM"
            return self.on.train_step(state, batch)

        beginning = None
        if initial_params is not None:

            def beginning(state: TrainState) -> TrainState:
                return with_params(state, initial_params())

        program = dataclasses.replace(self.on, config=config, train_step=train_step)
        run = RunDirectory(self.folder)
        try:
            with (
                contextlib.redirect_stderr(screen),
                Trackers(print) as trackers,
                self.checkpoints() as checkpoints,
            ):
                trackers.open(run, run.tensorboard, config)
                start = checkpoints.latest_step() or 0
                total = config.training.steps
                with Telemetry(run, trackers, start=start, total=total) as telemetry:
                    losses = loss_evaluator(program, self.valid_pairs, telemetry.message)
                    return Training(
                        program=program,
                        planner=Planner(self.train_pairs, config.data.batch, config.training.seed),
                        evaluators=[losses, *([] if self.decode is None else [self.decode])],
                        validation_shapes=planned_pass(self.valid_pairs, config.data.batch).shapes,
                        checkpoints=checkpoints,
                        telemetry=telemetry,
                        stop=stop,
                        first_state=beginning,
                        clock=self.goodput,
                        profiler=profiler or Profiler(),
                        limit=seconds and TimeLimit(seconds=seconds, clock=self.goodput),
                    ).run()
        finally:
            self.shown = screen.getvalue()

    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder / "checkpoints", tiny(self.changes).training)

    def steps(self) -> list[int]:
        with self.checkpoints() as checkpoints:
            return checkpoints.steps()

    def snapshot(self, step: Any = "latest") -> Snapshot:
        state = self.on.abstract
        names = ("step", "opt_state", "bad_run", "skipped")
        moments = {name: getattr(state, name) for name in names}
        with self.checkpoints() as checkpoints:
            named = select_step(checkpoints.directory, step)
            abstract = {"params": state.params, "opt_state": moments, "ema": state.ema}
            abstract = {name: tree for name, tree in abstract.items() if tree is not None}
            return read_snapshot(checkpoints.directory / str(named), abstract)

    def log(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl without their times."""
        lines = read_metrics(self.folder / "metrics.jsonl")
        return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]
