"""What of training survives a restart, what is due after a step, going back after bad updates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.data.order import Position
from flaxformer_mt.data.store import StoreError
from flaxformer_mt.errors import UserError
from flaxformer_mt.rundir import CheckpointError
from flaxformer_mt.rundir.checkpoint_choice import KeepPolicy, Kind
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.state import TrainState
from flaxformer_mt.training.telemetry import Sums, Telemetry


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How training ended: `stopped` goes on when started again."""

    state: Literal["finished", "stopped"]
    step: int
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """Where training stands, apart from parameters and moments. Plain JSON in a checkpoint.

    `position` is the next batch, and `data` the digest of the pairs in which that is a place (empty
    where nobody knows, as in early checkpoints); `left_out` names the batches that made updates
    non-finite before a rollback; `rollbacks` counts those since a checkpoint was last saved beyond
    `diverged`, the furthest step from which there was one; `stale` counts validations since the
    best one; `window` holds the sums of the report to come; `seconds` of training so far.
    """

    position: Position = dataclasses.field(default_factory=Position)
    data: str = ""
    left_out: tuple[Position, ...] = ()
    rollbacks: int = 0
    diverged: int = 0
    best: float | None = None
    best_step: int = 0
    stale: int = 0
    seconds: float = 0.0
    window: Sums = dataclasses.field(default_factory=Sums)

    def validated(
        self, step: int, scores: Mapping[str, float], settings: TrainingConfig
    ) -> Progress:
        """After a validation that gave `scores`; the best one is then at `best_step`.

        Of equal values the earlier is the best, and one that is not finite never is.
        """
        value, higher = scores[settings.best_metric], settings.best_metric == "bleu"
        better = math.isfinite(value) and (
            self.best is None or (value > self.best if higher else value < self.best)
        )
        if better:
            return dataclasses.replace(self, best=value, best_step=step, stale=0)
        return dataclasses.replace(self, stale=self.stale + 1)

    def outcome(
        self, step: int, settings: TrainingConfig, stopping: str | None = None
    ) -> Outcome | None:
        """How training ends after `step`, if it does: `stopping` says why it is asked to."""
        if settings.patience and self.stale >= settings.patience:
            best = "there was none at all"
            if self.best is not None:
                best = f"the best was {self.best:.4g} at step {self.best_step:,}"
            reason = f"no better {settings.best_metric} in {self.stale} validations; {best}"
            return Outcome("finished", step, reason)
        if step >= settings.steps:
            return Outcome("finished", step, f"all {settings.steps:,} steps done")
        return Outcome("stopped", step, stopping) if stopping else None

    def rolled_back(self, step: int, bad: Sequence[Position]) -> Progress:
        """What of this outlives going back from `step`: the `bad` batches, and that it happened."""
        return dataclasses.replace(
            self,
            left_out=(*self.left_out, *bad),
            rollbacks=self.rollbacks + 1,
            diverged=max(self.diverged, step),
        )

    def restored(self, checkpoint: Progress) -> Progress:
        """This, of a run that has gone back, where `checkpoint` stands."""
        return dataclasses.replace(
            checkpoint,
            left_out=self.left_out,
            rollbacks=self.rollbacks,
            diverged=self.diverged,
        )

    def saved(self, step: int) -> Progress:
        """As a checkpoint of `step` has it: beyond the place where it diverged, all is repaired."""
        if step <= self.diverged:
            return self
        return dataclasses.replace(self, rollbacks=0)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Progress:
        return cls(
            **{
                **values,
                "position": Position(**values["position"]),
                "left_out": tuple(Position(**item) for item in values["left_out"]),
                "window": Sums(**values.get("window", {})),
            }
        )


class DivergenceError(UserError):
    """Training keeps meeting losses or gradients that are not finite."""


class Skipped:
    """The batches whose updates were skipped, since one was last made."""

    def __init__(self, settings: TrainingConfig) -> None:
        self._settings = settings
        self._batches: list[Position] = []

    def __len__(self) -> int:
        return len(self._batches)

    def note(self, batch: Position, *, skipped: bool) -> None:
        """The update that `batch` made, or was to make."""
        if skipped:
            self._batches.append(batch)
        else:
            self._batches.clear()

    @property
    def too_many(self) -> bool:
        """Whether these are to be left out, from the last checkpoint on."""
        return len(self) >= self._settings.max_bad_updates

    def left_out(self, progress: Progress, step: int) -> Progress:
        """What of `progress` at `step` outlives going back, these batches with it; none is left.

        Raises DivergenceError if going back has not helped before.
        """
        after, most = progress.rolled_back(step, self._batches), self._settings.max_rollbacks
        if after.rollbacks > most:
            raise DivergenceError(
                f"step {step:,}: loss or gradient was not finite in {len(self)} consecutive "
                f"updates, and {most} restores of an earlier checkpoint did not help. The learning "
                "rate may be too high (training.schedule), the warm-up too short, or gradients "
                "need clipping (training.optimizer.clip_norm). The last good checkpoint is kept"
            )
        self._batches.clear()
        return after


@dataclasses.dataclass(frozen=True, kw_only=True)
class Due:
    """What is due after a step.

    `checkpoint` is a regular one. The last step's validation may be due without: its checkpoint is
    the run's end.
    """

    report: bool = False
    validation: bool = False
    checkpoint: bool = False

    @property
    def anything(self) -> bool:
        return self.report or self.validation or self.checkpoint


def due_after(step: int, settings: TrainingConfig, *, waiting: Due) -> Due:
    """What is due after `step`; validations and checkpoints that were `waiting` still are."""
    last, validation = step == settings.steps, _divides(settings.validate_every, step)
    return Due(
        report=last or _divides(settings.log_every, step),
        validation=waiting.validation or last or validation,
        checkpoint=waiting.checkpoint or validation or _divides(settings.save_every, step),
    )


def _divides(interval: int, step: int) -> bool:
    """Whether something that happens every `interval` steps (0: never) happens after `step`."""
    return interval > 0 and step % interval == 0


class Saves:
    """The checkpoints of one run: written while training goes on, they fail when nobody waits.

    A full disk may have room again before training ends, so a failure is reported, and only where
    it is asked for raised. `alone` is False for one of several processes: the others know nothing
    of its failure and would wait for it, so there it is always raised.
    """

    def __init__(self, checkpoints: Checkpoints, telemetry: Telemetry, *, alone: bool) -> None:
        self.step = -1  # the last one that is on disk or on its way there
        self._checkpoints, self._telemetry, self._alone = checkpoints, telemetry, alone

    def restore(self, program: Program, *, data: str) -> tuple[TrainState | None, int, Progress]:
        """State, step and progress of the last good checkpoint, to go on with on the pairs `data`.

        Of a run without one the state is None. Raises StoreError if it was saved in training on
        others, of which alone its position is a place.
        """
        checkpoints, abstract, self.step = self._checkpoints, program.abstract, -1
        if checkpoints.latest_step() is None:
            return None, 0, Progress(data=data)
        found = checkpoints.restore(abstract.params, _moments(abstract), abstract_ema=abstract.ema)
        state = TrainState(params=found.params, ema=found.ema, **found.opt_state)
        progress = Progress.from_dict(found.position)
        if data and progress.data and data != progress.data:
            run = checkpoints.directory.parent
            raise StoreError(
                f"{checkpoints.directory / str(found.step)}: was trained on other pairs (digest "
                f"{progress.data[:12]}) than those in {run / 'data'} now ({data[:12]}): put back "
                f"the text that the run was prepared from, delete {run / 'data'} and run `prepare` "
                f"again; or train on the new text in a new --workdir, with --init-from {run}"
            )
        self.step = found.step
        return state, found.step, dataclasses.replace(progress, data=data)

    def begin(
        self,
        state: TrainState,
        step: int,
        progress: Progress,
        metrics: Mapping[str, float],
        kind: Kind,
        *,
        surely: bool = False,
    ) -> bool:
        """Whether the save has begun; the one before has ended by then.

        Raises CheckpointError if it cannot begin but should `surely`.
        """
        self.confirm()
        # A restart from this step would not write the reports before it again.
        self._telemetry.catch_up()
        snapshot = Snapshot(
            step=step,
            params=state.params,
            opt_state=_moments(state),
            ema=state.ema,
            position=progress.to_dict(),
            metrics=dict(metrics),
            kind=kind,
        )
        try:
            self._checkpoints.save(snapshot)
        except CheckpointError as error:
            if surely:
                raise
            self._failed(step, error)
            return False
        self.step = step
        return True

    def confirm(self) -> None:
        """Waits for the save under way; one that has failed is reported and counts for nothing."""
        try:
            self._checkpoints.wait()
        except CheckpointError as error:
            failed, self.step = self.step, -1
            self._failed(failed, error)

    def _failed(self, step: int, error: CheckpointError) -> None:
        if not self._alone:
            raise error
        self._telemetry.message(f"step {step:,}: {error}; training goes on, and saves again")


def _moments(state: TrainState) -> dict[str, Any]:
    """Everything of the state that is neither parameters nor their average."""
    return {
        "step": state.step,
        "opt_state": state.opt_state,
        "bad_run": state.bad_run,
        "skipped": state.skipped,
    }


def keep_policy(settings: TrainingConfig) -> KeepPolicy:
    """Which checkpoints outlive the next ones."""
    return KeepPolicy(
        keep_latest=settings.keep_latest,
        keep_best=settings.keep_best,
        keep_for_average=settings.keep_for_average,
        metric=settings.best_metric,
        mode="max" if settings.best_metric == "bleu" else "min",
    )
