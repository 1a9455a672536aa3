"""Which checkpoints to keep, which exist, what a name means, and their average."""

import dataclasses
import logging
import math
import shutil
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir import CheckpointError, DamagedError, UnreadError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import COMMITTED, asking, is_remote, remove


def best_by(settings: TrainingConfig) -> dict[str, Any]:
    """By which metric saved with a checkpoint it may be the best: the highest or the lowest."""
    metric = settings.best_metric
    return {"metric": metric, "mode": "max" if metric == "bleu" else "min"}


def ranked(
    metrics: Mapping[int, Mapping[str, Any]], metric: str, mode: Literal["max", "min"]
) -> list[int]:
    """Steps with a finite metric from best to worst; of equal values the earlier step first."""
    sign = -1.0 if mode == "max" else 1.0
    values = {
        step: sign * float(found[metric])
        for step, found in metrics.items()
        if isinstance(found.get(metric), (int, float)) and math.isfinite(found[metric])
    }
    return sorted(values, key=lambda step: (values[step], step))


def steps_to_keep(
    steps: Sequence[int],
    metrics: Mapping[int, Mapping[str, Any]],
    settings: TrainingConfig,
    *,
    irregular: Container[int],
) -> set[int]:
    """Of `steps`, the `keep_latest` newest, `keep_best` best and `keep_for_average` newest regular.

    Steps saved only for a start, a stop or an end aren't regular.
    """
    present = {step: metrics.get(step, {}) for step in steps}
    best = ranked(present, **best_by(settings))[: settings.keep_best]
    newest_first = sorted(steps, reverse=True)
    regular = [step for step in newest_first if step not in irregular]
    newest = newest_first[: max(1, settings.keep_latest)]
    return {*newest, *regular[: settings.keep_for_average], *best}


AVERAGE = "average"

# Why a checkpoint was saved: the run's first weights, an interval, its end between intervals, a
# stop.
Kind = Literal["start", "regular", "end", "stop"]


def list_steps(directory: Path) -> list[int]:
    """Steps in a checkpoints directory, in order; in a bucket only committed ones."""
    return [step for step in steps_begun(directory) if is_there(directory / str(step))]


def steps_begun(directory: Path) -> list[int]:
    """Steps in a checkpoints directory, in order, in a bucket also uncommitted ones."""
    if not is_remote(directory) and not directory.is_dir():
        return []
    try:
        found = asking(directory, "read", lambda: [path.name for path in directory.iterdir()])
    except FileNotFoundError:  # in a bucket
        return []
    return sorted(int(name) for name in found if name.isdecimal())


def is_there(folder: Path) -> bool:
    """Whether there is a checkpoint; in a bucket, a complete one."""
    if is_remote(folder):
        return asking(folder, "read", (folder / COMMITTED).exists)
    return folder.is_dir()


def existing_average(directory: Path) -> Path:
    """Where averaged parameters lie. Raises CheckpointError if there are none."""
    if not is_there(directory / AVERAGE):
        raise CheckpointError(f"{directory.parent}: has no averaged parameters; run `average`")
    return directory / AVERAGE


def select_step(directory: Path, which: Literal["best", "latest"] | int) -> int:
    """The step that `which` names in a checkpoints directory. Raises CheckpointError."""
    steps = list_steps(directory)
    if not steps:
        raise CheckpointError(f"{directory}: has no checkpoint; train the run first")
    if which == "latest":
        return steps[-1]
    if which == "best":
        return best_steps(directory, 1)[0]
    if which in steps:
        return which
    raise CheckpointError(f"{directory}: has no checkpoint {which}; there are {listed(steps)}")


def best_steps(directory: Path, n: int) -> list[int]:
    """At most n steps, best first, by the newest checkpoint's metric. Raises CheckpointError."""
    metas = dict(readable_metas(directory))
    if metas:
        metrics = {step: meta["metrics"] for step, meta in metas.items()}
        if order := ranked(metrics, **metas[max(metas)]["best"]):
            return order[:n]
    there = listed(list_steps(directory))
    raise CheckpointError(f"{directory}: none of the checkpoints {there} has a validation result")


def kind_of(meta: Mapping[str, Any]) -> Kind:
    """Why a checkpoint was saved; early ones don't say."""
    kind: Kind = meta.get("kind", "regular")
    return kind


def regular_steps(directory: Path) -> list[int]:
    """The steps that may be averaged, in order: regular ones, and an end that wasn't extended."""
    steps = list_steps(directory)
    irregular = {
        step
        for step, meta in readable_metas(directory)
        if kind_of(meta) != "regular" and not (kind_of(meta) == "end" and step == steps[-1])
    }
    return [step for step in steps if step not in irregular]


def readable_metas(directory: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every undamaged step's description. Raises UnreadError, rather than choose without it."""
    from flaxformer_mt.rundir.checkpoint_format import read_meta  # by Orbax and JAX

    for step in list_steps(directory):
        try:
            yield step, read_meta(directory / str(step))
        except DamagedError:
            continue


def listed(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))


def stale_average(run: RunDirectory) -> str | None:
    """A sentence about an average older than the run's newest step. Raises CheckpointError."""
    if not is_there(run.checkpoints / AVERAGE):
        return None
    meta = average_meta(run)
    made = meta.get("newest", max(meta["steps"]))  # early ones don't say
    newest = max(list_steps(run.checkpoints), default=made)
    if newest <= made:
        return None
    averaged = f"the average is of steps {listed(meta['steps'])}"
    return f"{run}: {averaged}, but the run is now at step {newest}; run `average` again"


def average_meta(run: RunDirectory) -> dict[str, Any]:
    """The average's description, with its `steps`. Raises CheckpointError."""
    from flaxformer_mt.rundir.checkpoint_format import read_meta

    folder = existing_average(run.checkpoints)
    try:
        return read_meta(folder)
    except DamagedError as error:
        raise DamagedError(f"{error}; run `average` again") from error


def default_weights(run: RunDirectory) -> Literal["average", "best", "latest"]:
    """The average if it isn't stale, else the best, else the latest. Raises UnreadError."""
    if is_there(run.checkpoints / AVERAGE) and not stale_average(run):
        return "average"
    try:
        select_step(run.checkpoints, "best")
    except UnreadError:
        raise
    except CheckpointError:
        return "latest"
    return "best"


_LOGGER = logging.getLogger(__name__)

Which = Literal["auto", "best", "latest", "average"] | int


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A checkpoint, and its name: "average of steps 1100, 1200", "step 1200", "best, step 1200"."""

    checkpoint: Literal["average"] | int
    name: str


def chosen_weights(run: RunDirectory, which: Which) -> Chosen:
    """The checkpoint that a name means now; warns of a stale average. Raises CheckpointError."""
    named = default_weights(run) if which == "auto" else which
    if named == "average":
        chosen = Chosen("average", f"average of steps {listed(average_meta(run)['steps'])}")
    else:
        step = select_step(run.checkpoints, named)
        chosen = Chosen(step, f"step {step}" if named == step else f"{named}, step {step}")
    if which in ("auto", "average") and (stale := stale_average(run)):
        _LOGGER.warning("warning: %s. Using the weights '%s'", stale, chosen.name)
    return chosen


def average_checkpoints(
    run: RunDirectory, n: int, by: Literal["latest", "best"] = "latest"
) -> tuple[dict[str, Any], list[int]]:
    """The arithmetic mean of the parameters of the `n` newest or best checkpoints, and their steps.

    Takes `regular_steps`, and a checkpoint's moving average where it has one, as in validation.
    Nested dictionaries of NumPy arrays in the parameters' dtype, summed in float64, with one
    checkpoint in memory at a time. Raises CheckpointError for fewer than n or a damaged one.
    """
    import jax
    import numpy as np

    from flaxformer_mt.rundir.checkpoint_format import hush, read_weights

    hush()
    if n < 1:
        raise ValueError(f"cannot average {n} checkpoints")
    if by == "latest":
        steps, setting = regular_steps(run.checkpoints)[-n:], "training.keep_for_average"
    else:
        steps, setting = sorted(best_steps(run.checkpoints, n)), "training.keep_best"
    if len(steps) < n:
        kind = "validated" if by == "best" else "regular"
        others = "" if by == "best" else "; those of a start, a stop or an earlier end don't count"
        raise CheckpointError(
            f"{run}: cannot average {n} {kind} checkpoints, there are {len(steps)} (steps "
            f"{listed(steps) or 'none'}{others}); average fewer, or keep more with a higher "
            f"{setting}"
        )
    total: Any = None
    first: Any = None
    for step in steps:
        arrays = jax.tree.map(np.asarray, read_weights(run.checkpoints / str(step)))
        form = jax.tree.map(lambda array: (array.shape, str(array.dtype)), arrays)
        if total is None:
            total, first = jax.tree.map(lambda array: array.astype(np.float64), arrays), form
            continue
        if form != first:
            different = f"checkpoints {steps[0]} and {step} belong to different models"
            raise CheckpointError(f"{run}: {different}")
        jax.tree.map(lambda sum_, array: np.add(sum_, array, out=sum_), total, arrays)
    mean = jax.tree.map(lambda sum_, array: (sum_ / len(steps)).astype(array.dtype), total, arrays)
    return mean, steps


def write_average(run: RunDirectory, params: Any, steps: Sequence[int]) -> None:
    """Stores averaged parameters as `checkpoints/average`. Raises CheckpointError."""
    import orbax.checkpoint as ocp

    from flaxformer_mt.rundir.checkpoint_format import composite, first_line, hush

    hush()
    place, aside = run.checkpoints / AVERAGE, run.checkpoints / f"{AVERAGE}.new"
    before = run.checkpoints / f"{AVERAGE}.new.before"
    meta = {"steps": list(steps), "newest": max([*steps, *list_steps(run.checkpoints)])}
    arguments = composite({"params": params}, {"meta": meta})
    try:
        if is_remote(place):
            remove(place)
        else:
            for leftover in run.checkpoints.glob(f"{AVERAGE}.new*"):
                shutil.rmtree(leftover)
        with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as writer:
            writer.save(place if is_remote(place) else aside, args=arguments)
        if not is_remote(place):
            # By renaming: what is half removed would still be taken for an average.
            if place.exists():
                place.rename(before)
            aside.rename(place)
            remove(before)
    except Exception as error:  # Orbax and TensorStore raise anything.
        raise CheckpointError(f"{place}: cannot be written: {first_line(error)}") from error
