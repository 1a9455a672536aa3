"""Checkpoints that cannot be written without training ending for it."""

from __future__ import annotations

from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.errors import CheckpointError
from flaxformer_mt.training.telemetry import Telemetry


class Saves:
    """The saves of one run: they are written while training goes on, and fail when nobody waits.

    A full disk may have room again before training ends, so a failure is reported, and only where
    it is asked for raised. `alone` is False for one of several processes: the others know nothing
    of its failure and would wait for it, so there it is always raised.
    """

    def __init__(self, checkpoints: Checkpoints, telemetry: Telemetry, *, alone: bool) -> None:
        self.step = -1  # the last one that is on disk or on its way there
        self._checkpoints, self._telemetry, self._alone = checkpoints, telemetry, alone

    def begin(self, snapshot: Snapshot, *, surely: bool = False) -> bool:
        """Whether the save has begun; the one before has ended by then. Raises CheckpointError."""
        self.confirm()
        # A restart from this step would not write the reports before it again.
        self._telemetry.catch_up()
        try:
            self._checkpoints.save(snapshot)
        except CheckpointError as error:
            if surely:
                raise
            self._failed(snapshot.step, error)
            return False
        self.step = snapshot.step
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
