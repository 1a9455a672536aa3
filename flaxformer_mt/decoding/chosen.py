"""Which of a run's weights are meant, settled once for all who load them."""

from __future__ import annotations

import dataclasses
import logging
from typing import Literal

from flaxformer_mt.rundir.averaging import averaged_steps, stale_average
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.selection import joined, select_step
from flaxformer_mt.rundir.weights import default_weights

_LOGGER = logging.getLogger(__name__)

Which = Literal["auto", "best", "latest", "average"] | int


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A checkpoint, and its name: "average of steps 1100, 1200", "step 1200", "best, step 1200"."""

    checkpoint: Literal["average"] | int
    name: str


def chosen_weights(run: RunDirectory, which: Which) -> Chosen:
    """The checkpoint that a name means at this moment. Raises CheckpointError.

    Logs a warning if there is an average and the run has gone on since.
    """
    named = default_weights(run) if which == "auto" else which
    if named == "average":
        chosen = Chosen("average", f"average of steps {joined(averaged_steps(run))}")
    else:
        step = select_step(run.checkpoints, named)
        chosen = Chosen(step, f"step {step}" if named == step else f"{named}, step {step}")
    if which in ("auto", "average") and (stale := stale_average(run)):
        _LOGGER.warning("warning: %s. The weights used are '%s'", stale, chosen.name)
    return chosen
