"""The mean of several checkpoints' parameters (paper, section 6.1: the last 5, or 20 for big)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np
import orbax.checkpoint as ocp

from flaxformer_mt.rundir import CheckpointError
from flaxformer_mt.rundir.checkpoint_choice import (
    AVERAGE,
    BEFORE,
    best_steps,
    joined,
    list_steps,
    regular_steps,
)
from flaxformer_mt.rundir.checkpoint_format import composite, first_line, hush, read_weights
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import is_remote, remove, replace


def average_checkpoints(
    run: RunDirectory, n: int, by: Literal["latest", "best"] = "latest"
) -> tuple[dict[str, Any], list[int]]:
    """The arithmetic mean of the parameters of the `n` newest or best checkpoints, and their steps.

    A checkpoint's parameters are its moving average where it has one, as in validation. Only
    regular ones and the end: what was saved because a run started, stopped or once ended there lies
    anywhere between them. Nested dictionaries of NumPy arrays in the parameters' dtype. The sum is
    kept in float64 and one checkpoint is in memory at a time. Raises CheckpointError if there are
    fewer than n or one of them is damaged: no other takes its place silently.
    """
    hush()
    if n < 1:
        raise ValueError(f"cannot average {n} checkpoints")
    steps = _choose(run, n, by)
    total: Any = None
    first: Any = None
    for step in steps:
        arrays = jax.tree.map(np.asarray, read_weights(run.checkpoints / str(step)))
        form = jax.tree.map(lambda array: (array.shape, str(array.dtype)), arrays)
        if total is None:
            total, first = jax.tree.map(lambda array: array.astype(np.float64), arrays), form
            continue
        if form != first:
            raise CheckpointError(
                f"{run}: checkpoints {steps[0]} and {step} are of different models"
            )
        jax.tree.map(lambda sum_, array: np.add(sum_, array, out=sum_), total, arrays)
    mean = jax.tree.map(lambda sum_, array: (sum_ / len(steps)).astype(array.dtype), total, arrays)
    return mean, steps


def write_average(run: RunDirectory, params: Any, steps: Sequence[int]) -> None:
    """Stores averaged parameters as `checkpoints/average`, replacing those of before when done.

    Raises CheckpointError if they cannot be written; those of before then stay, and so they do
    when the process is killed. In a bucket, where folders cannot be renamed, a reader sees the
    former ones, then none, then the new ones.
    """
    hush()
    place = run.checkpoints / AVERAGE
    aside = run.checkpoints / f"{AVERAGE}.new"
    before = run.checkpoints / BEFORE
    meta = {"steps": list(steps), "newest": max([*steps, *list_steps(run.checkpoints)])}
    arguments = composite({"params": params}, {"meta": meta})
    try:
        for leftover in run.checkpoints.glob(f"{AVERAGE}.new*"):
            if is_remote(leftover):
                remove(leftover)
            else:
                shutil.rmtree(leftover)
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as writer:
            writer.save(aside, args=arguments)
        if is_remote(place):
            replace(place, aside)
            return
        # Until the last line a reader takes `before` where there is no `place`.
        if place.exists():
            if before.exists():
                shutil.rmtree(before)
            place.rename(before)
        aside.rename(place)
        if before.exists():
            shutil.rmtree(before)
    except Exception as error:  # Orbax and TensorStore raise anything.
        raise CheckpointError(f"{place}: cannot be written: {first_line(error)}") from error


def _choose(run: RunDirectory, n: int, by: Literal["latest", "best"]) -> list[int]:
    if by == "latest":
        present, setting = regular_steps(run.checkpoints)[-n:], "training.keep_for_average"
    else:
        present, setting = sorted(best_steps(run.checkpoints, n)), "training.keep_best"
    if len(present) < n:
        kind = "validated" if by == "best" else "regular"
        others = "" if by == "best" else "; those of a start, a stop or an earlier end do not count"
        raise CheckpointError(
            f"{run}: cannot average {n} {kind} checkpoints, there are {len(present)} (steps "
            f"{joined(present) or 'none'}{others}); average fewer, or train with a higher "
            f"{setting}, which keeps more"
        )
    return present
