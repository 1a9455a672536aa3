"""Which weights of a run a command takes when none are named."""

from __future__ import annotations

from typing import Literal

from flaxformer_mt.rundir.averaging import stale_average
from flaxformer_mt.rundir.errors import CheckpointError, UnreadError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.selection import has_average, select_step


def default_weights(run: RunDirectory) -> Literal["average", "best", "latest"]:
    """The average if one was made and the run is where it was then, else the best, else the latest.

    Raises UnreadError if it cannot be told at the moment which is the best.
    """
    if has_average(run.checkpoints) and not stale_average(run):
        return "average"
    try:
        select_step(run.checkpoints, "best")
    except UnreadError:
        raise
    except CheckpointError:
        return "latest"
    return "best"
