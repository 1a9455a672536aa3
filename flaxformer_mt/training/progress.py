"""Progress that survives a restart, the work due after a step, and checkpoints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flaxformer_mt.config import ExperimentConfig, TrainingConfig
from flaxformer_mt.data.order import Position
from flaxformer_mt.data.store import StoreError
from flaxformer_mt.errors import UserError
from flaxformer_mt.rundir.checkpoint_choice import Kind, how_alike, ranking_value
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.layout import Status
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.step import TrainState
from flaxformer_mt.training.telemetry import MetricSums


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The point that training has reached, without parameters and moments.

    Plain JSON in a checkpoint.
    """

    position: Position = dataclasses.field(default_factory=Position)  # of the next batch
    data: str = ""  # digest of the pairs that `position` is in; early checkpoints lack it
    left_out: tuple[Position, ...] = ()  # batches that made updates non-finite before a rollback
    rollbacks: int = 0  # since a checkpoint was last saved beyond `diverged`
    diverged: int = 0  # the furthest step of a rollback
    best: float | None = None
    best_loss: float | None = None  # of the same validation
    best_step: int = 0
    stale: int = 0  # validations since the best one
    alike: int = 0  # validations, while `best_metric` ranks all of them alike; then 0
    seconds: float = 0.0  # of training so far
    window: MetricSums = dataclasses.field(default_factory=MetricSums)  # of the report to come

    def validated(
        self, step: int, scores: Mapping[str, float], settings: TrainingConfig
    ) -> Progress:
        """The progress after a validation.

        The best is finite; of values that rank alike, it is the one with the lower loss, then the
        earlier. So the loss decides while a score ranks nothing, such as a BLEU below 1.
        """
        value = scores[settings.best_score]
        if not math.isfinite(value):
            return dataclasses.replace(self, stale=self.stale + 1)
        loss = scores.get(settings.loss_score, math.nan)
        finite_loss = loss if math.isfinite(loss) else None
        if self.best is None:
            return dataclasses.replace(
                self, best=value, best_step=step, stale=0, alike=1, best_loss=finite_loss
            )

        lower_loss = finite_loss is not None and (
            self.best_loss is None or finite_loss < self.best_loss
        )
        rank = ranking_value(settings.best_metric, value)
        best_rank = ranking_value(settings.best_metric, self.best)
        better = rank < best_rank if settings.best_metric == "loss" else rank > best_rank
        still_alike = self.alike and rank == best_rank
        after = dataclasses.replace(self, alike=self.alike + 1 if still_alike else 0)
        if better or (rank == best_rank and lower_loss):
            return dataclasses.replace(
                after, best=value, best_step=step, stale=0, best_loss=finite_loss
            )
        return dataclasses.replace(after, stale=self.stale + 1)

    def outcome(
        self, step: int, settings: TrainingConfig, stopping: str | None = None
    ) -> Status | None:
        """How training ends after `step`, if it does; `stopping` says why it is asked to."""
        if settings.patience and self.stale >= settings.patience:
            return Status(state="finished", step=step, reason=self._out_of_patience(settings))
        if step >= settings.steps:
            reason = f"all {settings.steps:,} steps done"
            if step > settings.steps:
                reason = f"beyond training.steps = {settings.steps:,}"
            return Status(state="finished", step=step, reason=reason)
        if stopping:
            return Status(state="stopped", step=step, reason=stopping)
        return None

    def without_rank(self, settings: TrainingConfig) -> str | None:
        """A sentence that says so if the score ranked all validations alike."""
        if settings.best_metric == "loss" or self.alike < 2 or self.best is None:
            return None
        return (
            f"{settings.best_score} was {how_alike(settings.best_metric, self.best)} at each of "
            f"{self.alike} validations, so the lowest loss decides which is best"
        )

    def _out_of_patience(self, settings: TrainingConfig) -> str:
        note = self.without_rank(settings)
        if note and self.best_loss is not None:
            return (
                f"no lower loss in {self.stale} validations; the lowest was {self.best_loss:.4g} "
                f"at step {self.best_step:,}; {note}"
            )
        best = "there was none"
        if self.best is not None:
            best = f"the best was {self.best:.4g} at step {self.best_step:,}"
        return f"no better {settings.best_score} in {self.stale} validations; {best}"

    def rolled_back(
        self, step: int, bad: Sequence[Position], most: int, *, saved: int | None = None
    ) -> Progress:
        """The progress that survives a rollback from `step`: its `bad` batches are left out.

        `saved` is the last checkpoint's step. Raises DivergenceError if going back `most` times has
        not helped.
        """
        if self.rollbacks >= most:
            raise DivergenceError(
                f"step {step:,}: loss or gradient was not finite in {len(bad)} consecutive "
                f"updates, and {most} restores did not help; the newest checkpoint: "
                f"{'none' if saved is None else f'--weights {saved}'}. Try a lower learning "
                "rate, a longer warm-up, or training.optimizer.clip_norm"
            )
        return dataclasses.replace(
            self,
            left_out=(*self.left_out, *bad),
            rollbacks=self.rollbacks + 1,
            diverged=max(self.diverged, step),
        )

    def restored(self, checkpoint: Progress) -> Progress:
        """A checkpoint's progress, with this one's record of rollbacks."""
        return dataclasses.replace(
            checkpoint,
            left_out=self.left_out,
            rollbacks=self.rollbacks,
            diverged=self.diverged,
        )

    def saved(self, step: int) -> Progress:
        """As a checkpoint of `step` has it: saving beyond the place of divergence ends it."""
        return self if step <= self.diverged else dataclasses.replace(self, rollbacks=0)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Progress:
        """The inverse of `dataclasses.asdict`; older checkpoints lack some fields."""
        # They don't say whether scores differed; a BLEU of 0 never does.
        alike = 1 if values.get("best") == 0 else 0
        return cls(
            **{
                "alike": alike,
                **values,
                "position": Position(**values["position"]),
                "left_out": tuple(Position(**batch) for batch in values["left_out"]),
                "window": MetricSums(**values.get("window", {})),
            }
        )


class DivergenceError(UserError):
    """Training keeps meeting losses or gradients that are not finite."""


class Due(NamedTuple):
    """Work due after a step; after the last one, validation may be due without a checkpoint."""

    report: bool = False
    validation: bool = False
    checkpoint: bool = False  # a regular one


def due_after(step: int, settings: TrainingConfig, *, waiting: Due) -> Due:
    """Work due after `step`, including validations and checkpoints that were `waiting`."""

    def every(interval: int) -> bool:  # 0: never
        return interval > 0 and step % interval == 0

    last = step == settings.steps
    validation = every(settings.validate_every)
    return Due(
        report=last or every(settings.log_every),
        validation=waiting.validation or last or validation,
        checkpoint=waiting.checkpoint or validation or every(settings.save_every),
    )


def restored(
    checkpoints: Checkpoints, program: Program, *, data: str
) -> tuple[TrainState | None, int, Progress]:
    """State, step and progress of the last good checkpoint; without one the state is None.

    Raises StoreError if it was saved in training on other pairs than those of digest `data`.
    """
    abstract = program.abstract
    if checkpoints.latest_step() is None:
        return None, 0, Progress(data=data)
    checkpoint = checkpoints.restore(
        abstract.params, without_params(abstract), abstract_ema=abstract.ema
    )
    base = None if abstract.base is None else checkpoints.restore_base(abstract.base)
    state = TrainState(
        params=checkpoint.params, ema=checkpoint.ema, base=base, **checkpoint.opt_state
    )
    progress = Progress.from_dict(checkpoint.position)
    if data and progress.data and data != progress.data:
        run = checkpoints.directory.parent
        raise StoreError(
            f"{checkpoints.directory / str(checkpoint.step)}: was trained on different pairs than "
            f"{run / 'data'} now holds: restore the text, delete {run / 'data'} and run `prepare` "
            f"again; or train in a new --workdir, with --init-from {run}"
        )
    return state, checkpoint.step, dataclasses.replace(progress, data=data)


def snapshot(
    config: ExperimentConfig,
    state: TrainState,
    step: int,
    progress: Progress,
    metrics: Mapping[str, float],
    kind: Kind,
) -> Snapshot:
    return Snapshot(
        step=step,
        params=state.params,
        opt_state=without_params(state),
        ema=state.ema,
        adapter_scale=None if state.base is None else config.training.adapters.scale,
        position=dataclasses.asdict(progress),
        metrics=dict(metrics),
        kind=kind,
    )


def without_params(state: TrainState) -> dict[str, Any]:
    """Everything in the state but the parameters and their average, as a checkpoint has it."""
    return {name: getattr(state, name) for name in ("step", "opt_state", "bad_run", "skipped")}
