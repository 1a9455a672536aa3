"""Updates that were skipped: when there are too many in a row, and how often to go back for it."""

from __future__ import annotations

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.data.order import Position
from flaxformer_mt.errors import UserError
from flaxformer_mt.training.progress import Progress


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

    def clear(self) -> None:
        self._batches.clear()

    @property
    def too_many(self) -> bool:
        """Whether these are to be left out, from the last checkpoint on."""
        return len(self) >= self._settings.max_bad_updates

    def left_out(self, progress: Progress, step: int) -> Progress:
        """What of `progress` at `step` outlives going back, these batches with it.

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
        return after
