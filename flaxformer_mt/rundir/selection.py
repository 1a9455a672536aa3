"""Which steps a checkpoints directory has, and which of them is meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from flaxformer_mt.rundir import stored
from flaxformer_mt.rundir.errors import CheckpointError, DamagedError
from flaxformer_mt.rundir.paths import asking, is_remote
from flaxformer_mt.rundir.remote_folders import COMMITTED
from flaxformer_mt.rundir.retention import ranked

AVERAGE = "average"
BEFORE = "average.before"

# What a checkpoint was saved for: the weights that a run began with, an interval, the end of
# training where no interval ends, or a stop on request.
Kind = Literal["start", "regular", "end", "stop"]


def list_steps(directory: Path) -> list[int]:
    """Steps in a checkpoints directory, in order, whole or not; in a bucket the committed ones."""
    if is_remote(directory):
        # One that is being saved, or whose saving was killed, is no step yet.
        return [step for step in steps_begun(directory) if is_there(directory / str(step))]
    if not directory.is_dir():
        return []
    return sorted(int(p.name) for p in directory.iterdir() if p.name.isdecimal() and p.is_dir())


def steps_begun(directory: Path) -> list[int]:
    """Steps in a bucket, committed or not."""
    try:
        found = asking(directory, "read", lambda: [path.name for path in directory.iterdir()])
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in found if name.isdecimal())


def is_there(folder: Path) -> bool:
    """Whether there is a checkpoint, a complete one if in a bucket."""
    if is_remote(folder):
        return asking(folder, "read", (folder / COMMITTED).exists)
    return folder.is_dir()


def has_average(directory: Path) -> bool:
    """Whether a checkpoints directory holds averaged parameters."""
    return is_there(average_folder(directory))


def average_folder(directory: Path) -> Path:
    """Where averaged parameters lie, or are to lie if there are none.

    Whoever was killed while replacing them has left those of before under another name.
    """
    place, before = directory / AVERAGE, directory / BEFORE
    return before if not is_remote(place) and not place.is_dir() and before.is_dir() else place


def existing_average(directory: Path) -> Path:
    """Where averaged parameters lie. Raises CheckpointError if there are none."""
    if not has_average(directory):
        raise CheckpointError(
            f"{directory.parent}: has no averaged parameters; `average` makes them from its "
            "checkpoints"
        )
    return average_folder(directory)


def select_step(directory: Path, which: Literal["best", "latest"] | int) -> int:
    """The step that `which` names in a checkpoints directory. Raises CheckpointError."""
    steps = list_steps(directory)
    if not steps:
        raise CheckpointError(f"{directory}: holds no checkpoint; train the run first")
    if which == "latest":
        return steps[-1]
    if which == "best":
        return best_steps(directory, 1)[0]
    if which in steps:
        return which
    raise CheckpointError(f"{directory}: has no checkpoint {which}; there are {joined(steps)}")


def best_steps(directory: Path, n: int) -> list[int]:
    """At most n steps, the best first, by what the newest checkpoint calls best.

    Raises CheckpointError if no checkpoint was validated.
    """
    metas = dict(readable_metas(directory))
    if metas:
        best = metas[max(metas)]["best"]
        metrics = {step: meta["metrics"] for step, meta in metas.items()}
        if order := ranked(metrics, best["metric"], best["mode"]):
            return order[:n]
    raise CheckpointError(
        f"{directory}: no checkpoint carries a validation result, so none is best; there are "
        f"{joined(list_steps(directory))}"
    )


def kind_of(meta: Mapping[str, Any]) -> Kind:
    """What the checkpoint that so describes itself was saved for; early ones do not say."""
    kind: Kind = meta.get("kind", "regular")
    return kind


def is_regular(meta: Mapping[str, Any]) -> bool:
    """Whether any longer run, undisturbed and begun from nothing, would have this checkpoint."""
    return kind_of(meta) == "regular"


def regular_steps(directory: Path) -> list[int]:
    """The steps that may be averaged, in order: regular ones, and the end of the run.

    An end from which the run was extended is not among them. A damaged step is: it is named when it
    is used.
    """
    steps = list_steps(directory)
    irregular = {
        step
        for step, meta in readable_metas(directory)
        if not (is_regular(meta) or (kind_of(meta) == "end" and step == steps[-1]))
    }
    return [step for step in steps if step not in irregular]


def readable_metas(directory: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every step's description of itself, those of damaged steps left out.

    A damaged step is named when something wants that very step; here it only has no metrics. One
    that the machine fails to read is an UnreadError: what is best or regular would else be decided
    without it.
    """
    for step in list_steps(directory):
        try:
            yield step, stored.read_meta(directory / str(step))
        except DamagedError:
            continue


def joined(steps: Sequence[int]) -> str:
    """Steps as a message lists them."""
    return ", ".join(str(step) for step in steps)
