"""What, besides the train state, must survive a restart."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from flaxformer_mt.config.schema import TrainingConfig
from flaxformer_mt.data.order import Position
from flaxformer_mt.training.window import Sums


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

    def validated(self, step: int, value: float, *, higher_is_better: bool) -> Progress:
        """After a validation that gave `value`; the best one is then at `best_step`.

        Of equal values the earlier is the best, and one that is not finite never is.
        """
        better = math.isfinite(value) and (
            self.best is None or (value > self.best if higher_is_better else value < self.best)
        )
        if better:
            return dataclasses.replace(self, best=value, best_step=step, stale=0)
        return dataclasses.replace(self, stale=self.stale + 1)

    def patience_over(self, settings: TrainingConfig) -> str | None:
        """Why training ends here, if there were too many validations without a new best one."""
        if not settings.patience or self.stale < settings.patience:
            return None
        best = "there was none at all"
        if self.best is not None:
            best = f"the best was {self.best:.4g} at step {self.best_step:,}"
        return f"no better {settings.best_metric} in {self.stale} validations; {best}"

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
