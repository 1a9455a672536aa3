"""A run's weights to work with, without its model, lock or training state."""

from typing import Any, Literal

from flaxformer_mt.rundir import (
    CheckpointError,
    DamagedError,
    checkpoint_choice as choice,
    checkpoint_format as form,
)
from flaxformer_mt.rundir.checkpoint_choice import Chosen, Which
from flaxformer_mt.rundir.layout import RunDirectory

_CHOICES = 100  # attempts to read a checkpoint that others remove or replace


def load_params(
    run: RunDirectory, which: Literal["best", "latest", "average"] | int
) -> dict[str, Any]:
    """A run's parameters, as `read_weights`, without model or lock. Raises CheckpointError."""
    _, params = _load(run, which)
    return params


def load_chosen(run: RunDirectory, which: Which | Chosen) -> tuple[Chosen, dict[str, Any]]:
    """The checkpoint that `which` names and its parameters, as `load_params`.

    Chooses again if training removed the checkpoint in between. If `average` replaced the average,
    the name is that of the loaded one. Raises CheckpointError.
    """
    for _ in range(_CHOICES):
        chosen = which if isinstance(which, Chosen) else choice.chosen_weights(run, which)
        try:
            meta, params = _load(run, chosen.checkpoint)
        except CheckpointError:
            folder = run.checkpoints / str(chosen.checkpoint)
            if chosen.checkpoint == "average" or chosen == which or choice.is_there(folder):
                raise
            continue
        if chosen.checkpoint == "average":
            chosen = Chosen("average", choice.average_name(meta))
        return chosen, params
    raise CheckpointError(f"{run}: its checkpoints are replaced faster than they can be read")


def _load(
    run: RunDirectory, which: Literal["best", "latest", "average"] | int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A checkpoint's description and parameters."""
    form.hush()
    try:
        if which == "average":
            folder = choice.existing_average(run.checkpoints)
            return choice.while_replaced(folder, form.read_described)
        step = choice.select_step(run.checkpoints, which)
        return form.read_described(run.checkpoints / str(step))
    except DamagedError as error:
        steps = choice.listed(choice.list_steps(run.checkpoints))
        raise DamagedError(f"{error}; choose another checkpoint: there are {steps}") from error
