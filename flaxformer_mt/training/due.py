"""What is to be done after a step: a pure function of the step, the settings and what waits."""

from __future__ import annotations

import dataclasses

from flaxformer_mt.config import TrainingConfig


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
