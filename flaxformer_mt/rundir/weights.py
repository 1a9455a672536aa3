"""Which weights of a run a command takes when none are named."""

from __future__ import annotations

from typing import Literal

from flaxformer_mt.rundir.checkpoints import AVERAGE, CheckpointError, select_step
from flaxformer_mt.rundir.layout import RunDirectory


def default_weights(run: RunDirectory) -> Literal["average", "best", "latest"]:
    """The average if one was made, else the best validated checkpoint, else the latest."""
    if (run.checkpoints / AVERAGE).is_dir():
        return "average"
    try:
        select_step(run.checkpoints, "best")
    except CheckpointError:
        return "latest"
    return "best"
