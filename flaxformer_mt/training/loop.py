"""The training loop. It decides when things happen; the modules it calls do them."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from flaxformer_mt.data.order import Position
from flaxformer_mt.data.pipeline import Batches
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.data.planner import Planner
from flaxformer_mt.parallel.process_settings import keep_freed_memory
from flaxformer_mt.parallel.processes import ALONE, Processes, StopRequest
from flaxformer_mt.rundir.checkpoint_choice import Kind
from flaxformer_mt.rundir.checkpoints import Checkpoints
from flaxformer_mt.rundir.layout import Status
from flaxformer_mt.training.instruments import Goodput, Profiler, Utilization
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.progress import Due, Progress, due_after, restored, snapshot
from flaxformer_mt.training.step import TrainState
from flaxformer_mt.training.telemetry import MetricsWindow, Telemetry
from flaxformer_mt.training.validation import Evaluator

_MEASURED = 30  # steps after which their time predicts that of all training


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Dispatched:
    """A step that the devices may still compute."""

    metrics: Any
    batch: Position
    positions: int  # the batch's, source and target, of all processes, padding included
    stop: Any  # the answer of `StopRequest.ask`


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeLimit:
    """Seconds that all starts of a training may take together; all processes decide as the first.

    How long a step takes is only known while it runs, on a machine that may have other work.
    """

    seconds: float
    clock: Goodput
    processes: Processes = ALONE

    def is_reached(self, validation: float) -> bool:
        """Whether there is no more time than for one validation, of so many seconds."""
        return self.processes.first(lambda: self.clock.wall + validation >= self.seconds)

    @property
    def seconds_left(self) -> float:
        """As this process counts them."""
        return max(0.0, self.seconds - self.clock.wall)


@dataclasses.dataclass(kw_only=True, eq=False)
class Training:
    """Training until `training.steps`, until patience or the time ends, or a stop is requested.

    The order of operations is the contract of exact resume:
      1. the next batch; the train step is dispatched; while it runs, the metrics of the step
         before are fetched;
      2. every `log_every` steps a report;
      3. every `validate_every` steps and after the last: validation, then a checkpoint with its
         scores; every `save_every` steps, and when a stop is requested: only a checkpoint. The
         checkpoint holds the state after step n and the position of batch n + 1, so a restart
         repeats nothing. A run that begins with another's weights validates them before its first
         step. When the time limit is reached, the step is validated, and training ends. Regular
         checkpoints, which are averaged, are those of an interval, and the last one until the run
         is extended.
    While updates are skipped, 3. waits for one that isn't: parameters that give only non-finite
    gradients are no use in a checkpoint. `max_bad_updates` skipped in a row restore the last
    checkpoint and leave out the batches that made them. Raises DivergenceError after
    `max_rollbacks` restores without a checkpoint beyond that place, CheckpointError and
    RunDirectoryError for what can't be written, and StoreError for a checkpoint of other pairs.

    Several processes do all this in step, on their shares of each batch, and decide alike: metrics
    are the global batch's, evaluators give all the same scores, and a stop signal to one process
    reaches all of them one step later.

    One of `evaluators` gives `training.best_score`. `first_state` makes the state that a run
    without a checkpoint begins with from a freshly drawn one.
    """

    program: Program
    planner: Planner  # of batches of the training pairs
    evaluators: Sequence[Evaluator]
    validation_shapes: Sequence[Shape]
    checkpoints: Checkpoints
    telemetry: Telemetry
    stop: StopRequest
    clock: Goodput = dataclasses.field(default_factory=Goodput)
    profiler: Profiler = dataclasses.field(default_factory=Profiler)
    utilization: Utilization | None = None
    first_state: Callable[[TrainState], TrainState] | None = None
    limit: TimeLimit | None = None

    def __post_init__(self) -> None:
        self.config, self.settings = self.program.config, self.program.config.training
        self.skipped: list[Position] = []  # batches skipped since the last update
        self.reading = contextlib.ExitStack()
        self.pending: _Dispatched | None = None
        self.measured = 0  # steps of this start
        self.due = Due()
        self.compiled: set[Shape] = set()  # for which a step was compiled in this start
        self.validation_seconds = 0.0  # of the last one

    def run(self) -> Status:
        try:
            with self.clock("start"):
                self.begin_or_restore()
            self.clock.kind = "other"
            outcome = self.until_done()
            with self.clock("checkpoints"):
                self.checkpoints.wait()
            self.clock.keep(self.step)
            return outcome
        finally:
            self.reading.close()
            if self.profiler.running:
                self.telemetry.message(self.profiler.end(self.step))

    def until_done(self) -> Status:
        outcome = self.progress.outcome(self.step, self.settings)
        while outcome is None:
            self.one_step()
            outcome = self.after_step()
        return outcome

    def after_step(self) -> Status | None:
        """Does the work due after a step. Returns how training ends, if it does."""
        # Read before the step is settled: a stop heard there takes effect after the next step.
        stopping = self.stop.reason
        self.due = due_after(self.step, self.settings, waiting=self.due)
        self.look_at_the_time()
        self.settle_if_needed(stopping)
        if self.is_diverging:
            self.roll_back()
            return None

        if self.due.report:
            self.report()
        if self.skipped and self.step != self.settings.steps:
            return None

        ended = None
        if self.due.validation:
            self.validate()
            stopping = self.stop.reason
            ended = self.out_of_time()
        elif self.due.checkpoint or stopping:
            self.save({}, "regular" if self.due.checkpoint else "stop")
        outcome = self.progress.outcome(self.step, self.settings, stopping)
        if ended is not None and (outcome is None or outcome.state == "stopped"):
            return ended
        return outcome

    def look_at_the_time(self) -> None:
        """If there is no more time than for a validation, makes it due: then training ends.

        Several processes would wait for each other at each step: they look when something is due.
        """
        if self.limit is None or not (self.limit.processes.count == 1 or any(self.due)):
            return
        if self.limit.is_reached(self.validation_seconds):
            self.due = self.due._replace(validation=True)

    def out_of_time(self) -> Status | None:
        """That training ends with this validation, if there is no time for another."""
        if self.limit is None or not self.limit.is_reached(self.validation_seconds):
            return None
        reason = f"{self.settings.minutes:g} minutes are over (training.minutes)"
        return Status(state="finished", step=self.step, reason=reason)

    def settle_if_needed(self, stopping: str | None) -> None:
        """Waits for the step if anything follows it; ends a trace whose last step it is."""
        trace_ends = self.profiler.running and self.step == self.profiler.last
        if (any(self.due) or stopping or trace_ends) and not self.is_diverging:
            self.settle()
        if trace_ends:
            self.telemetry.message(self.profiler.end(self.step))

    @property
    def is_diverging(self) -> bool:
        return len(self.skipped) >= self.settings.max_bad_updates

    def begin_or_restore(self, past: Progress | None = None) -> None:
        """Resumes from the last good checkpoint, if there is one; `past` survives a rollback."""
        state, self.step, self.progress = restored(
            self.checkpoints, self.program, data=self.planner.pairs.digest
        )
        # If newer checkpoints were damaged, their steps are done and reported again.
        self.telemetry.rewind(self.step, every=self.settings.log_every)
        self.clock.goes_on_after(self.step)
        self.window = MetricsWindow(self.progress.window, self.utilization)
        self.mark = time.perf_counter()
        if past is not None:
            self.progress = past.restored(self.progress)
        elif state is not None:
            self.telemetry.message(f"resuming after step {self.step:,}")

        self.batches = self.reading.enter_context(
            Batches(
                self.planner,
                self.progress.position,
                skip=frozenset(self.progress.left_out),
                share=self.program.share,
                workers=self.config.data.workers,
            )
        )
        if state is not None and self.progress.outcome(self.step, self.settings):
            self.state = state
            return

        shapes = self.batches.shape_ahead(), self.batches.shapes, self.validation_shapes
        with self.clock("compile"), self.window.paused(), self.compiling(shapes[0]):
            with self.program.compiling(*shapes):
                self.state = self.program.init() if state is None else state
        if state is not None:
            return

        if self.first_state is not None:
            self.state = self.first_state(self.state)
        if self.state.base is not None:
            self.checkpoints.save_base(self.state.base)
        if self.first_state is not None:
            # From here on a restart doesn't need the other run. And a first validation that is
            # worse than these weights is not the best.
            self.validate("start")

    def compiling(self, shape: Shape) -> contextlib.AbstractContextManager[None]:
        """Says so, unless the step for this shape of batch (of all processes) is compiled."""
        if shape in self.compiled:
            return contextlib.nullcontext()
        shapes = len(self.batches.shapes)
        if self.program.compiles_ahead:
            self.compiled.update(self.batches.shapes)
            return self.telemetry.doing(f"compiling for {shapes} shapes of batches")
        self.compiled.add(shape)
        return self.telemetry.doing(f"compiling {len(self.compiled)} of {shapes}")

    def one_step(self) -> None:
        """The next batch, the step on it, and meanwhile the metrics of the step before."""
        if self.step + 1 == self.profiler.first and not self.profiler.over:
            self.settle()
            self.profiler.begin()
        waited_before = self.batches.seconds_waited
        compilations_before = self.program.compilations()
        with self.clock("data"):
            shape = self.batches.shape_ahead()
            batch, position = next(self.batches)
            # A wait that ends while the devices still compute costs nothing.
            if self.pending is not None and not self.pending.metrics["loss"].is_ready():
                self.clock.kind = "steps"
        self.window.waited(self.batches.seconds_waited - waited_before)

        dispatch_start = time.perf_counter()
        with self.clock("steps"), self.profiler.step(self.step + 1), self.compiling(shape):
            self.state, metrics = self.program.train_step(self.state, batch)
            if self.program.compilations() > compilations_before:
                self.clock.kind = "compile"
                self.window.left_out(time.perf_counter() - dispatch_start)

        stop = self.stop.ask()
        self.settle()
        self.pending = _Dispatched(
            metrics=metrics,
            batch=self.batches.delivered,
            positions=self.program.share.of_whole(batch.src.size + batch.tgt_in.size),
            stop=stop,
        )
        self.step += 1

        now = time.perf_counter()
        seconds = self.progress.seconds + now - self.mark
        self.mark = now
        self.progress = dataclasses.replace(self.progress, position=position, seconds=seconds)

    def settle(self) -> None:
        """Waits for the dispatched step's metrics and adds them to the window."""
        if self.pending is None:
            return
        dispatched = self.pending
        self.pending = None
        with self.clock("steps"):
            metrics, stop = jax.device_get((dispatched.metrics, dispatched.stop))
        self.stop.hear(stop)
        self.window.add(metrics, positions=dispatched.positions)
        self.telemetry.step(self.window.perplexity)
        self.measured += 1
        if self.measured == 1:
            keep_freed_memory(jax.process_count())
        if self.measured == _MEASURED:
            self.telemetry.cost(self.window.sums, self.steps_left())
        if metrics["bad_run"]:
            self.skipped.append(dispatched.batch)
        else:
            self.skipped.clear()

    def report(self) -> None:
        metrics = self.window.report(epoch=self.batches.epochs_done, steps_left=self.steps_left())
        self.telemetry.training(self.step, {**metrics, "goodput": self.clock.share})
        self.clock.keep(self.step)

    def steps_left(self) -> int:
        """How many steps are still to come; with a time limit, about as many at their pace."""
        most = self.settings.steps - self.step
        pace = self.window.sums
        if self.limit is None or not pace.seconds:
            return most
        return min(most, round(self.limit.seconds_left * pace.steps / pace.seconds))

    def validate(self, kind: Kind | None = None) -> None:
        """Scores, the choice of the best, the checkpoint, of this kind or of what is due."""
        before = self.clock.seconds["evaluation"]
        self.stop.after = "this validation"
        with self.clock("evaluation"), self.window.paused(), self.telemetry.doing("validating"):
            scores = self.scores_of(self.program.weights(self.state))
            self.progress = progress = self.progress.validated(self.step, scores, self.settings)
            report = {**scores, "training_seconds": progress.seconds}
            is_best = progress.best is not None and progress.best_step == self.step
            self.telemetry.validation(self.step, report, best=is_best)
            if progress.alike == 2 and (note := progress.without_rank(self.settings)):
                self.telemetry.message(note)
        self.stop.after = "this step"
        self.validation_seconds = self.clock.seconds["evaluation"] - before
        self.save(scores, kind or ("regular" if self.due.checkpoint else "end"))

    def scores_of(self, params: Any) -> dict[str, float]:
        """All evaluators' scores, up to one that finds the loss not finite: no search can rank
        the translations of such a model."""
        scores: dict[str, float] = {}
        for evaluator in self.evaluators:
            scores.update(evaluator(params, self.step))
            if not math.isfinite(scores.get("loss", 0.0)):
                scores.setdefault(self.settings.best_score, math.nan)
                self.telemetry.message(
                    f"step {self.step:,}: the validation loss is not finite: training has diverged"
                )
                break
        return scores

    def save(self, metrics: Mapping[str, float], kind: Kind) -> None:
        """Begins a checkpoint of the settled state, unless the step has one."""
        self.due = Due()
        with self.clock("checkpoints"), self.window.paused():
            self.progress = self.progress.saved(self.step)
            progress = dataclasses.replace(self.progress, window=self.window.sums)
            self.checkpoints.save(
                snapshot(self.config, self.state, self.step, progress, metrics, kind)
            )
        self.clock.keep(self.step)

    def roll_back(self) -> None:
        """Restores the last checkpoint and leaves out the batches of the bad updates."""
        diverged_step = self.step
        bad_batches = self.skipped
        max_rollbacks = self.settings.max_rollbacks
        past = self.progress.rolled_back(
            diverged_step, bad_batches, max_rollbacks, saved=self.checkpoints.latest_step()
        )
        self.skipped = []
        self.pending = None
        self.due = Due()
        self.clock.step = diverged_step
        self.reading.close()
        self.checkpoints.wait()
        del self.state  # devices may not have room for two
        with self.clock("start"):
            self.begin_or_restore(past)
        self.telemetry.message(
            f"step {diverged_step:,}: {len(bad_batches)} consecutive updates were not finite; "
            f"restored step {self.step:,}, skipping their batches (restore {past.rollbacks} of "
            f"{max_rollbacks})"
        )
