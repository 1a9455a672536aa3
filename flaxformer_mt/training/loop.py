"""The training loop. It decides when things happen; what happens is in the modules it calls."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Literal

import jax

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.pipeline import Batches
from flaxformer_mt.data.position import Position
from flaxformer_mt.data.sampling import Resampler
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.parallel import ALONE, Processes
from flaxformer_mt.rundir.checkpoints import Checkpoints
from flaxformer_mt.rundir.selection import Kind
from flaxformer_mt.training.instruments import Instruments
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.progress import Progress
from flaxformer_mt.training.saving import Saves
from flaxformer_mt.training.signals import StopRequest, verdict
from flaxformer_mt.training.snapshots import restored, snapshot
from flaxformer_mt.training.state import with_params
from flaxformer_mt.training.step_ends import StepEnds
from flaxformer_mt.training.telemetry import Telemetry
from flaxformer_mt.training.validation import validation_loss
from flaxformer_mt.training.window import Window

# Parameters and step to scores of real translations of the validation set, such as {"bleu": 41.0}.
Decode = Callable[[Any, int], Mapping[str, float]]


class DivergenceError(RuntimeError):
    """Training keeps meeting losses or gradients that are not finite."""


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
    initial_params: Any = None,
    resampler: Resampler | None = None,
    processes: Processes = ALONE,
    instruments: Instruments | None = None,
) -> Outcome:
    """Trains until `config.training.steps`, until patience ends, or until a stop is requested.

    The order of operations is the contract of exact resume:
      1. the next batch; the train step is dispatched; the metrics of the step before are fetched
         while it runs;
      2. every `log_every` steps a report;
      3. every `validate_every` steps and after the last: validation, then a checkpoint with its
         scores; every `save_every` steps, and when a stop is requested: a checkpoint alone, which
         in the latter case is not a regular one and not averaged. A checkpoint holds the state
         after step n and the position of batch n + 1, so that a restart repeats nothing.
    While updates are being skipped, what 3. says waits for one that is made: parameters from which
    nothing but non-finite gradients come are nothing to go back to. `max_bad_updates` skipped in a
    row restore the last checkpoint and leave out the batches that made them; after `max_rollbacks`
    of these DivergenceError is raised. A checkpoint or report that cannot be written, as on a full
    disk, stops nothing: only if that is so at the end it is raised (CheckpointError,
    RunDirectoryError). In several processes a checkpoint that fails ends them all at once.

    Several processes do all this in step, on their shares of each batch. What a decision hangs on
    is the same in all of them: steps are counted, metrics and `bad_run` come of the global batch,
    validation's scores are the first process's. A stop that any one is asked for is asked on with
    each step and known to all of them a step later, so that they save the same one.
    """
    if config.training.best_metric == "bleu" and decode is None:
        raise ValueError(
            "'training.best_metric' = 'bleu' needs a `decode` that scores translations"
        )
    run = _Run(
        config,
        program,
        train_pairs,
        valid_pairs,
        checkpoints,
        telemetry,
        decode,
        initial_params,
        resampler,
        processes,
        instruments or Instruments(),
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


class _Run:
    """The variables of one call of `train`."""

    def __init__(
        self,
        config: ExperimentConfig,
        program: Program,
        train_pairs: TokenPairs,
        valid_pairs: TokenPairs,
        checkpoints: Checkpoints,
        telemetry: Telemetry,
        decode: Decode | None,
        initial_params: Any,
        resampler: Resampler | None,
        processes: Processes,
        instruments: Instruments,
    ) -> None:
        self.config, self.program, self.checkpoints = config, program, checkpoints
        self.train_pairs, self.valid_pairs = train_pairs, valid_pairs
        self.telemetry, self.decode, self.initial_params = telemetry, decode, initial_params
        self.resampler, self.processes, self.instruments = resampler, processes, instruments
        self.goodput, self.profiler = instruments.goodput, instruments.profiler
        self.ballot = 0  # what all processes know of a stop
        self.pending: _Dispatched | None = None
        self.bad: list[Position] = []  # the batches of the present run of skipped updates
        self.validation_due = self.save_due = False
        self.metrics: Mapping[str, float] = {}  # of the last checkpoint
        self.kind: Kind = "regular"  # of it
        self.saves = Saves(checkpoints, telemetry, alone=processes.count == 1)
        self.step_ends = StepEnds()
        self.restore()
        self.batches = self.open_batches()
        if self.step:
            # Newer checkpoints may have been damaged: their steps are done and reported again.
            telemetry.rewind(self.step)
            telemetry.message(f"resuming after step {self.step:,}")
        self.goodput.lap("start")

    def restore(self) -> None:
        """The last good checkpoint's state and progress; without one, those of a new run."""
        if self.checkpoints.latest_step() is None:
            self.state = self.program.init()
            if self.initial_params is not None:
                self.state = with_params(self.state, self.initial_params)
            self.step, self.progress, self.saves.step = 0, Progress(), -1
        else:
            self.state, self.step, self.progress = restored(self.program, self.checkpoints)
            self.saves.step = self.step
        self.goodput.goes_on_after(self.step)
        self.window = Window(self.progress.window, self.instruments.utilization)
        self.mark = time.perf_counter()
        if self.step == 0 and self.initial_params is not None:
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
            report_due = last or self.step % settings.log_every == 0
            self.validation_due |= last or _divides(settings.validate_every, self.step)
            self.save_due |= self.step % settings.save_every == 0
            traced = self.profiler.ends_at(self.step)
            needed = report_due or self.validation_due or self.save_due or stopping or traced
            if needed and not self.diverged():
                self.settle()
            if traced:
                self.telemetry.message(self.profiler.end(self.step))
            if self.diverged():
                self.roll_back()
                continue
            if report_due:
                self.report()
            if self.bad and not last:
                continue
            if self.validation_due:
                outcome = self.validate()
            elif self.save_due or stopping:
                self.save({}, kind="regular" if self.save_due else "stop")
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
        if metrics["bad_run"]:
            self.bad.append(self.pending.batch)
        else:
            self.bad.clear()
        self.pending = None
        self.goodput.lap("steps")

    def diverged(self) -> bool:
        """Whether the last settled step made the run of skipped updates too long."""
        return len(self.bad) >= self.config.training.max_bad_updates

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
        value = scores[settings.best_metric]
        sign = 1 if settings.best_metric == "bleu" else -1
        progress = self.progress
        is_best = math.isfinite(value) and (
            progress.best is None or sign * value > sign * progress.best
        )
        self.progress = dataclasses.replace(
            progress,
            best=value if is_best else progress.best,
            best_step=self.step if is_best else progress.best_step,
            stale=0 if is_best else progress.stale + 1,
        )
        shown = {**scores, "training_seconds": self.progress.seconds}
        self.telemetry.validation(self.step, shown, best=is_best)
        self.window.pause(time.perf_counter() - start)
        self.goodput.lap("evaluation")
        self.save(scores, kind="regular")
        return self.patience_over()

    def patience_over(self) -> Outcome | None:
        """How training has ended if there were too many validations without a new best one."""
        settings, progress = self.config.training, self.progress
        if not settings.patience or progress.stale < settings.patience:
            return None
        best = "there was none at all"
        if progress.best is not None:
            best = f"the best was {progress.best:.4g} at step {progress.best_step:,}"
        reason = f"no better {settings.best_metric} in {progress.stale} validations; {best}"
        return Outcome("finished", self.step, reason)

    def save(self, metrics: Mapping[str, float], *, kind: Kind, surely: bool = False) -> None:
        """A checkpoint of the settled state, unless the step has one.

        One that cannot be written is reported, or `surely` raised: a full disk may have room again
        before training ends.
        """
        self.validation_due = self.save_due = False
        if self.saves.step == self.step:
            return
        start = time.perf_counter()
        self.goodput.lap("other")
        self.metrics, self.kind = metrics, kind
        progress = dataclasses.replace(self.progress, window=self.window.sums)
        taken = snapshot(self.state, self.step, progress, metrics, kind)
        if not self.saves.begin(taken, surely=surely):
            return
        self.goodput.lap("checkpoints")
        self.goodput.saved(self.step)
        self.instruments.keep(self.step)
        self.window.pause(time.perf_counter() - start)

    def roll_back(self) -> None:
        """Back to the last checkpoint, without the batches that made the updates non-finite."""
        left_out = (*self.progress.left_out, *self.bad)
        rollbacks = self.progress.rollbacks + 1
        at, count = self.step, len(self.bad)
        if rollbacks > self.config.training.max_rollbacks:
            raise DivergenceError(
                f"step {at:,}: loss or gradient was not finite in {count} consecutive updates, and "
                f"{rollbacks - 1} restores of an earlier checkpoint did not help. The learning "
                "rate may be too high (training.schedule), the warm-up too short, or gradients "
                "need clipping (training.optimizer.clip_norm). The last good checkpoint is kept"
            )
        self.pending = None
        self.bad.clear()
        self.validation_due = self.save_due = False
        self.batches.close()
        self.goodput.done(at)
        self.saves.confirm()
        self.restore()
        self.progress = dataclasses.replace(self.progress, left_out=left_out, rollbacks=rollbacks)
        self.batches = self.open_batches()
        self.telemetry.rewind(self.step)
        self.telemetry.message(
            f"step {at:,}: {count} consecutive updates were not finite; restored step "
            f"{self.step:,} and leave their batches out "
            f"(restore {rollbacks} of {self.config.training.max_rollbacks})"
        )
        self.goodput.lap("start")


def _divides(interval: int, step: int) -> bool:
    """Whether something that happens every `interval` steps (0: never) happens after `step`."""
    return interval > 0 and step % interval == 0
