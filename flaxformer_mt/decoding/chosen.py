"""Which of a run's weights are meant, settled once for all who load them."""

from __future__ import annotations

import dataclasses
from typing import Literal

from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.selection import select_step
from flaxformer_mt.rundir.weights import default_weights

Which = Literal["auto", "best", "latest", "average"] | int


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A checkpoint, and what to call it: "average", "step 1200", "best, step 1200"."""

    checkpoint: Literal["average"] | int
    name: str


def chosen_weights(run: RunDirectory, which: Which) -> Chosen:
    """The checkpoint that a name means at this moment. Raises CheckpointError."""
    named = default_weights(run) if which == "auto" else which
    if named == "average":
        return Chosen("average", "average")
    step = select_step(run.checkpoints, named)
    return Chosen(step, f"step {step}" if named == step else f"{named}, step {step}")
