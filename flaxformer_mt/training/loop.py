"""The training loop. It decides when things happen; what happens is in the modules it calls."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Literal

import jax

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.order import Position
from flaxformer_mt.data.pipeline import Batches
from flaxformer_mt.data.planner import planned_pass
from flaxformer_mt.data.sampling import Resampler
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.parallel import ALONE, Processes
from flaxformer_mt.rundir.checkpoints import Checkpoints
from flaxformer_mt.rundir.selection import Kind
from flaxformer_mt.training.ahead import compiled_beside
from flaxformer_mt.training.due import Due, due_after
from flaxformer_mt.training.instruments import Instruments
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.progress import Progress
from flaxformer_mt.training.recovery import Skipped
from flaxformer_mt.training.saving import Saves
from flaxformer_mt.training.signals import StopRequest, verdict
from flaxformer_mt.training.snapshots import restored, snapshot
from flaxformer_mt.training.state import with_params
from flaxformer_mt.training.step_ends import StepEnds
from flaxformer_mt.training.telemetry import Telemetry
from flaxformer_mt.training.validation import doubt, validation_loss
from flaxformer_mt.training.window import Window

# Parameters and step to scores of real translations of the validation set, such as {"bleu": 41.0}.
Decode = Callable[[Any, int], Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How `train` ended: `stopped` goes on when called again."""

    state: Literal["finished", "stopped"]
    step: int
    reason: str


def train(
    config: ExperimentConfig,
    *,
    program: Program,
    train_pairs: TokenPairs,
    valid_pairs: TokenPairs,
    checkpoints: Checkpoints,
    telemetry: Telemetry,
    stop: StopRequest,
    decode: Decode | None,
    initial_params: Callable[[], Any] | None = None,
    resampler: Resampler | None = None,
    processes: Processes = ALONE,
    instruments: Instruments | None = None,
    after_first_step: Callable[[], object] = lambda: None,
) -> Outcome:
    """Trains until `config.training.steps`, until patience ends, or until a stop is requested.

    `initial_params` reads the parameters, host arrays, that a run without a checkpoint begins with;
    they are not kept. `after_first_step` is called once, when the first step of this call is done.

    The order of operations is the contract of exact resume:
      1. the next batch; the train step is dispatched; the metrics of the step before are fetched
         while it runs;
      2. every `log_every` steps a report;
      3. every `validate_every` steps and after the last: validation, then a checkpoint with its
         scores; every `save_every` steps, and when a stop is requested: a checkpoint alone, which
         in the latter case is not a regular one and not averaged; nor is the last step's, once
         the run is extended, if no interval ends there. A checkpoint holds the state
         after step n and the position of batch n + 1, so that a restart repeats nothing.
    While updates are being skipped, what 3. says waits for one that is made: parameters from which
    nothing but non-finite gradients come are nothing to go back to. `max_bad_updates` skipped in a
    row restore the last checkpoint and leave out the batches that made them; after `max_rollbacks`
    of these without a checkpoint beyond the place DivergenceError is raised. A checkpoint or report
    that cannot be written, as on a full disk, stops nothing: only if that is so at the end, or if
    the reports of steps that are done again cannot be taken back, it is raised (CheckpointError,
    RunDirectoryError). In several processes a checkpoint that fails ends them all at once.
    A validation set that fits no batch is a PlanError before the first step; a checkpoint of
    training on other pairs than `train_pairs` is a StoreError.

    Several processes do all this in step, on their shares of each batch. What a decision hangs on
    is the same in all of them: steps are counted, metrics and `bad_run` come of the global batch,
    validation's scores are the first process's. A stop that any one is asked for is asked on with
    each step and known to all of them a step later, so that they save the same one.
    """
    if config.training.best_metric == "bleu" and decode is None:
        raise ValueError(
            "'training.best_metric' = 'bleu' needs a `decode` that scores translations"
        )
    planned_pass(valid_pairs, config.data.batch)
    run = _Run(
        config=config,
        program=program,
        train_pairs=train_pairs,
        valid_pairs=valid_pairs,
        checkpoints=checkpoints,
        telemetry=telemetry,
        decode=decode,
        initial_params=initial_params,
        resampler=resampler,
        processes=processes,
        instruments=instruments or Instruments(),
        after_first_step=after_first_step,
    )
    try:
        return run.until_done(stop)
    finally:
        run.close()


@dataclasses.dataclass(frozen=True)
class _Dispatched:
    """A step whose metrics are still on their way."""

    metrics: Mapping[str, jax.Array]
    batch: Position
    positions: int  # source and target of the global batch, padding included
    ballot: Any  # of all processes, whether to stop
    ended: Future[float]  # when the devices were done with it


@dataclasses.dataclass(kw_only=True, eq=False)
class _Run:
    """What one call of `train` is given, and its variables."""

    config: ExperimentConfig
    program: Program
    train_pairs: TokenPairs
    valid_pairs: TokenPairs
    checkpoints: Checkpoints
    telemetry: Telemetry
    decode: Decode | None
    initial_params: Callable[[], Any] | None
    resampler: Resampler | None
    processes: Processes
    instruments: Instruments
    after_first_step: Callable[[], object]

    def __post_init__(self) -> None:
        self.goodput, self.profiler = self.instruments.goodput, self.instruments.profiler
        self.saves = Saves(self.checkpoints, self.telemetry, alone=self.processes.count == 1)
        self.pending: _Dispatched | None = None
        self.warm = False  # a step has been done
        self.ballot = 0  # what all processes know of a stop
        self.due = Due()
        self.skipped = Skipped(self.config.training)
        self.metrics: Mapping[str, float] = {}  # of the last checkpoint
        self.kind: Kind = "regular"  # of it
        goes_on = self.restore()
        self.batches = self.open_batches()
        if not goes_on:
            self.begin()
        else:
            # Newer checkpoints may have been damaged: their steps are done and reported again.
            self.telemetry.rewind(self.step)
            self.telemetry.message(f"resuming after step {self.step:,}")
        self.step_ends = StepEnds()
        self.goodput.lap("start")

    def restore(self) -> bool:
        """The state and progress of the last good checkpoint, if there is one.

        Otherwise a new run's progress, whose state is for `begin` to make.
        """
        found = self.checkpoints.latest_step() is not None
        data = self.train_pairs.digest
        if found:
            self.state, self.step, self.progress = restored(
                self.program, self.checkpoints, data=data
            )
            self.saves.step = self.step
        else:
            self.step, self.progress, self.saves.step = 0, Progress(data=data), -1
        self.goodput.goes_on_after(self.step)
        self.window = Window(self.progress.window, self.instruments.utilization)
        self.mark = time.perf_counter()
        return found

    def begin(self) -> None:
        """The state of a new run, drawn or given, and the first step's program."""
        shape = self.batches.shape_ahead()
        self.goodput.lap("start")
        with compiled_beside(self.program, shape):
            self.state = self.program.init()
        self.goodput.lap("compile")
        if self.initial_params is not None:
            self.state = with_params(self.state, self.initial_params())
            # From here on the run stands on its own: a restart needs the other run no more.
            self.save({}, kind="start")

    def open_batches(self) -> Batches:
        return Batches(
            self.train_pairs,
            self.config.data.batch,
            seed=self.config.training.seed,
            position=self.progress.position,
            skip=frozenset(self.progress.left_out),
            share=self.program.share,
            workers=self.config.data.workers,
            epoch_pairs=self.config.data.epoch_pairs,
            resampler=self.resampler,
        )

    def until_done(self, stop: StopRequest) -> Outcome:
        settings = self.config.training
        outcome = self.patience_over()
        while outcome is None and self.step < settings.steps:
            self.one_step(stop)
            last, stopping = self.step == settings.steps, self.stopping(stop)
            self.due = due_after(self.step, settings, waiting=self.due)
            traced = self.profiler.ends_at(self.step)
            if (self.due.anything or stopping or traced) and not self.skipped.too_many:
                self.settle()
            if traced:
                self.telemetry.message(self.profiler.end(self.step))
            if self.skipped.too_many:
                self.roll_back()
                continue
            if self.due.report:
                self.report()
            if self.skipped and not last:
                continue
            if self.due.validation:
                outcome = self.validate()
            elif self.due.checkpoint or stopping:
                self.save({}, kind="regular" if self.due.checkpoint else "stop")
            if outcome is None and stopping and not last:
                outcome = Outcome("stopped", self.step, stopping)
        self.goodput.lap("other")
        self.saves.confirm()
        self.save(self.metrics, kind=self.kind, surely=True)
        self.checkpoints.wait()
        self.telemetry.flush()
        self.goodput.lap("checkpoints")
        self.instruments.keep(self.step)
        return outcome or Outcome("finished", self.step, f"all {settings.steps:,} steps done")

    def close(self) -> None:
        """Ends what runs beside the loop, however the loop has ended."""
        self.batches.close()
        self.step_ends.close()
        if self.profiler.running:
            self.telemetry.message(self.profiler.end(self.step))

    def stopping(self, stop: StopRequest) -> str | None:
        """Why to stop after this step, if so. Of several processes, what all of them know."""
        if self.processes.count > 1:
            return verdict(self.ballot)
        return f"{stop.received} received" if stop.received else None

    def one_step(self, stop: StopRequest) -> None:
        """The next batch, the step on it, and meanwhile the metrics of the step before."""
        if self.profiler.begins_at(self.step + 1):
            self.settle()
            self.profiler.begin()
        self.goodput.lap("other")
        waited, compiled = self.batches.seconds_waited, self.program.compilations()
        batch, position = next(self.batches)
        self.window.waited(self.batches.seconds_waited - waited)
        self.lap_wait()
        with self.profiler.step(self.step + 1):
            self.state, metrics = self.program.train_step(self.state, batch)
        self.goodput.lap("compile" if self.program.compilations() > compiled else "steps")
        ballot = self.processes.ask(stop.ballot(self.processes.number))
        self.settle()
        self.pending = _Dispatched(
            metrics,
            self.batches.delivered,
            self.program.share.of_whole(batch.src.size + batch.tgt_in.size),
            ballot,
            self.step_ends.watch(metrics["loss"]),
        )
        self.step += 1
        self.progress = dataclasses.replace(
            self.progress, position=position, seconds=self.progress.seconds + self.lap()
        )

    def lap_wait(self) -> None:
        """While the devices compute, waiting for data costs nothing: only what comes after does."""
        if self.pending is not None:
            loss: Any = self.pending.metrics["loss"]
            if not loss.is_ready():
                self.goodput.lap("steps")
                return
            self.goodput.lap("steps", until=self.pending.ended.result())
        self.goodput.lap("data")

    def lap(self) -> float:
        now = time.perf_counter()
        seconds, self.mark = now - self.mark, now
        return seconds

    def settle(self) -> None:
        """Waits for the dispatched step's metrics and takes them into the window."""
        if self.pending is None:
            return
        metrics, ballot = jax.device_get((self.pending.metrics, self.pending.ballot))
        self.ballot = max(self.ballot, int(ballot))
        self.window.add(metrics, positions=self.pending.positions)
        self.telemetry.step(float(metrics["nll"]))
        self.skipped.note(self.pending.batch, skipped=bool(metrics["bad_run"]))
        self.pending = None
        self.goodput.lap("steps")
        if not self.warm:
            self.warm = True
            self.after_first_step()

    def report(self) -> None:
        values = self.window.report(
            epoch=self.batches.epochs_done,
            steps_left=self.config.training.steps - self.step,
        )
        self.telemetry.training(self.step, {**values, "goodput": self.goodput.share})
        self.instruments.keep(self.step)

    def validate(self) -> Outcome | None:
        """Scores, the choice of the best, the checkpoint; an Outcome where patience has ended."""
        start = time.perf_counter()
        self.goodput.lap("other")
        settings = self.config.training
        params = self.state.params if self.state.ema is None else self.state.ema
        scores = validation_loss(self.program, self.valid_pairs, self.config, params)
        if self.decode is not None:
            scores.update(self.decode(params, self.step))
        mine = scores
        scores = self.processes.first(lambda: mine)
        self.progress = self.progress.validated(
            self.step,
            scores[settings.best_metric],
            higher_is_better=settings.best_metric == "bleu",
        )
        shown = {**scores, "training_seconds": self.progress.seconds}
        self.telemetry.validation(self.step, shown, best=self.progress.best_step == self.step)
        if doubtful := doubt(scores, self.step, self.config):
            self.telemetry.message(doubtful)
        self.window.pause(time.perf_counter() - start)
        self.goodput.lap("evaluation")
        self.save(scores, kind="regular" if self.due.checkpoint else "end")
        return self.patience_over()

    def patience_over(self) -> Outcome | None:
        """How training has ended if there were too many validations without a new best one."""
        reason = self.progress.patience_over(self.config.training)
        return Outcome("finished", self.step, reason) if reason else None

    def save(self, metrics: Mapping[str, float], *, kind: Kind, surely: bool = False) -> None:
        """A checkpoint of the settled state, unless the step has one.

        One that cannot be written is reported, or `surely` raised: a full disk may have room again
        before training ends.
        """
        self.due = Due()
        if self.saves.step == self.step:
            return
        start = time.perf_counter()
        self.goodput.lap("other")
        self.metrics, self.kind = metrics, kind
        progress = self.progress.saved(self.step)
        reached = dataclasses.replace(progress, window=self.window.sums)
        taken = snapshot(self.state, self.step, reached, metrics, kind)
        if not self.saves.begin(taken, surely=surely):
            return
        self.progress = progress
        self.goodput.lap("checkpoints")
        self.goodput.saved(self.step)
        self.instruments.keep(self.step)
        self.window.pause(time.perf_counter() - start)

    def roll_back(self) -> None:
        """Back to the last checkpoint, without the batches that made the updates non-finite."""
        at, count = self.step, len(self.skipped)
        before = self.skipped.left_out(self.progress, at)
        self.pending, self.due = None, Due()
        self.skipped.clear()
        self.batches.close()
        self.goodput.done(at)
        self.saves.confirm()
        del self.state  # devices need not have room for two
        found = self.restore()
        self.progress = before.restored(self.progress)
        self.batches = self.open_batches()
        if not found:
            self.begin()
        self.telemetry.rewind(self.step)
        self.telemetry.message(
            f"step {at:,}: {count} consecutive updates were not finite; restored step "
            f"{self.step:,} and leave their batches out "
            f"(restore {before.rollbacks} of {self.config.training.max_rollbacks})"
        )
        self.goodput.lap("start")
