"""Which checkpoints to keep, which exist, which one a name means, and their average."""

import contextlib
import dataclasses
import fcntl
import logging
import math
import numbers
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.files.atomic import exchange
from flaxformer_mt.rundir import CheckpointError, DamagedError, UnreadError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import COMMITTED, asking, check_writable, is_remote, remove

T = TypeVar("T")


def best_by(settings: TrainingConfig) -> dict[str, Any]:
    """The metric that decides which checkpoint is best, and whether by the highest or the lowest.

    It is saved with each checkpoint.
    """
    mode = "min" if settings.best_metric == "loss" else "max"
    return {"metric": settings.best_score, "mode": mode}


def ranked(
    metrics: Mapping[int, Mapping[str, Any]], metric: str, mode: Literal["max", "min"]
) -> list[int]:
    """Steps with a finite metric from best to worst.

    Of equal values the one of lower loss is first, then the earlier. So the loss decides where a
    metric ranks nothing.
    """
    sign = -1.0 if mode == "max" else 1.0
    scores = {
        step: sign * ranking_value(metric, score)
        for step, score in finite_values(metrics, metric).items()
    }
    _, slash, validation_set = metric.partition("/")
    losses = finite_values(metrics, f"loss{slash}{validation_set}")
    return sorted(scores, key=lambda step: (scores[step], losses.get(step, math.inf), step))


# Of 100. A model that has learned nothing yet matches a word or two, and smoothing makes a BLEU of
# that: 0.58 at step 20 and 0 at step 40 don't tell which checkpoint is better.
_BLEU_BY_CHANCE = 1.0


def ranking_value(metric: str, value: float) -> float:
    """A validation's score, as it ranks checkpoints: all BLEUs below 1 are alike."""
    return 0.0 if _is_bleu(metric) and value < _BLEU_BY_CHANCE else value


def _is_bleu(score: str) -> bool:
    """Whether a score, such as `bleu/SET` of one validation set, is a BLEU."""
    return score.partition("/")[0] == "bleu"


def how_alike(metric: str, value: float) -> str:
    """The scores that rank like `value`, in words: "below 1" or "23.40"."""
    if _is_bleu(metric) and value < _BLEU_BY_CHANCE:
        return f"below {_BLEU_BY_CHANCE:g}"
    return f"{value:.2f}"


def finite_values(metrics: Mapping[int, Mapping[str, Any]], name: str) -> dict[int, float]:
    """One metric by step, where it is a finite number."""
    return {
        step: float(scores[name])
        for step, scores in metrics.items()
        if isinstance(scores.get(name), (int, float)) and math.isfinite(scores[name])
    }


def without_rank(metrics: Mapping[int, Mapping[str, Any]], metric: str) -> str | None:
    """A sentence that says so if two or more values of the metric all rank alike."""
    scores = [*finite_values(metrics, metric).values()]
    if metric == "loss" or len(scores) < 2:
        return None
    if len({ranking_value(metric, score) for score in scores}) > 1:
        return None
    return (
        f"{metric} is {how_alike(metric, scores[0])} at each of {len(scores)} validated "
        "checkpoints, so the lowest loss decides which is best"
    )


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
# Beside it while `write_average` works, and after if that is killed.
_ASIDE, _BEFORE = f"{AVERAGE}.new", ".before"
# Attempts to read a checkpoint that other processes replace, and seconds between two of them.
_PATIENCE, _PAUSE = 100, 0.01

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
        names = asking(directory, "read", lambda: [path.name for path in directory.iterdir()])
    except FileNotFoundError:  # in a bucket
        return []
    return sorted(int(name) for name in names if name.isdecimal())


def is_there(folder: Path) -> bool:
    """Whether there is a checkpoint; in a bucket, a complete one."""
    if is_remote(folder):
        return asking(folder, "read", (folder / COMMITTED).exists)
    return folder.is_dir()


def has_average(directory: Path) -> bool:
    """Whether a checkpoints directory has averaged parameters, also while they are replaced."""
    for _ in range(_PATIENCE):
        if is_there(directory / AVERAGE):
            return True
        if is_remote(directory) or not any(directory.glob(f"{_ASIDE}*{_BEFORE}")):
            return False
        time.sleep(_PAUSE)
    return False


def existing_average(directory: Path) -> Path:
    """The folder of averaged parameters. Raises CheckpointError if there are none."""
    if not has_average(directory):
        raise CheckpointError(f"{directory.parent}: has no averaged parameters; run `average`")
    return directory / AVERAGE


def while_replaced(folder: Path, read: Callable[[Path], T]) -> T:
    """The result of `read` for an average; reads again if it was replaced meanwhile.

    Several processes can't see a replacement alike, so they only read once. Raises CheckpointError.
    """
    import jax

    for _ in range(_PATIENCE):
        version = _version(folder)
        try:
            return read(folder)
        except CheckpointError:
            is_same = version is not None and version == _version(folder)
            if jax.process_count() > 1 or is_same or not has_average(folder.parent):
                raise
    return read(folder)


def _version(folder: Path) -> tuple[int, int] | None:
    """Tells a folder from an earlier one of the same name; None between two renames."""
    if is_remote(folder):
        return 0, 0
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def select_step(directory: Path, which: Literal["best", "latest"] | int | str) -> int:
    """The step that `which` names in a checkpoints directory. Raises CheckpointError.

    A step may be written in digits, as for a command.
    """
    if isinstance(which, str) and re.fullmatch("[0-9]{1,18}", which):
        which = int(which)
    elif which not in ("best", "latest") and not _is_step(which):
        raise CheckpointError(
            f"{directory}: no checkpoint is named {which!r}: give 'auto', 'average', 'best', "
            "'latest' or a step"
        )

    steps = list_steps(directory)
    if not steps:
        raise CheckpointError(f"{directory}: has no checkpoint; train the run first")
    if which == "latest":
        return steps[-1]
    if which == "best":
        return best_steps(directory, 1)[0]
    if which in steps:
        return int(which)
    raise CheckpointError(f"{directory}: has no checkpoint {which}; there are {listed(steps)}")


def _is_step(which: object) -> bool:
    return isinstance(which, numbers.Integral) and not isinstance(which, bool)


def best_steps(directory: Path, n: int) -> list[int]:
    """At most n steps, best first, by the newest checkpoint's metric. Raises CheckpointError."""
    metrics, best = _validated(directory)
    best_first = ranked(metrics, **best) if best else []
    if not best_first:
        steps = listed(list_steps(directory))
        raise CheckpointError(
            f"{directory}: none of the checkpoints {steps} has a validation result"
        )
    return best_first[:n]


def _validated(directory: Path) -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
    """Each undamaged step's scores, and `best_by` as the newest one has it."""
    metas = dict(readable_metas(directory))
    best = metas[max(metas)]["best"] if metas else {}
    return {step: meta["metrics"] for step, meta in metas.items()}, best


def _warn_without_rank(run: RunDirectory) -> None:
    metrics, best = _validated(run.checkpoints)
    if best and (note := without_rank(metrics, best["metric"])):
        _LOGGER.warning("%s: %s", run, note)


def kind_of(meta: Mapping[str, Any]) -> Kind:
    """Why a checkpoint was saved; early ones don't say."""
    kind: Kind = meta.get("kind", "regular")
    return kind


def regular_steps(directory: Path) -> list[int]:
    """The steps that may be averaged, in order: regular ones, and an end that wasn't extended."""
    steps = list_steps(directory)
    kinds = {step: kind_of(meta) for step, meta in readable_metas(directory)}
    irregular = {step for step, kind in kinds.items() if kind != "regular"}
    if steps and kinds.get(steps[-1]) == "end":
        irregular.discard(steps[-1])
    return [step for step in steps if step not in irregular]


def readable_metas(directory: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every undamaged step's description. Raises UnreadError, rather than choose without it."""
    from flaxformer_mt.rundir.checkpoint_format import read_meta  # loads Orbax and JAX

    for step in list_steps(directory):
        try:
            yield step, read_meta(directory / str(step))
        except DamagedError:
            continue


def listed(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps))


def stale_average(run: RunDirectory) -> str | None:
    """A sentence about an average older than the run's newest step. Raises CheckpointError."""
    if not has_average(run.checkpoints):
        return None
    meta = average_meta(run)
    newest_then = meta.get("newest", max(meta["steps"]))  # early ones don't say
    newest = max(list_steps(run.checkpoints), default=newest_then)
    if newest <= newest_then:
        return None
    return (
        f"{run}: the average is of steps {listed(meta['steps'])}, but the run is now at step "
        f"{newest}; run `average` again"
    )


def average_meta(run: RunDirectory) -> dict[str, Any]:
    """The average's description, with its `steps`. Raises CheckpointError."""
    from flaxformer_mt.rundir.checkpoint_format import read_meta

    folder = existing_average(run.checkpoints)
    try:
        return while_replaced(folder, read_meta)
    except DamagedError as error:
        raise DamagedError(f"{error}; run `average` again") from error


def average_name(meta: Mapping[str, Any]) -> str:
    """The name of an average with this description: "average of steps 1100, 1200"."""
    return f"average of steps {listed(meta['steps'])}"


def default_weights(run: RunDirectory) -> Literal["average", "best", "latest"]:
    """The average if it isn't stale, else the best, else the latest. Raises UnreadError."""
    if has_average(run.checkpoints) and not stale_average(run):
        return "average"
    return best_or_latest(run)


def best_or_latest(run: RunDirectory) -> Literal["best", "latest"]:
    """The best checkpoint, if any was validated, else the latest. Raises UnreadError."""
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
        chosen = Chosen("average", average_name(average_meta(run)))
    else:
        step = select_step(run.checkpoints, named)
        chosen = Chosen(step, f"step {step}" if named == step else f"{named}, step {step}")
    if named == "best":
        _warn_without_rank(run)
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
    from flaxformer_mt.rundir.checkpoint_format import hush

    hush()
    if n < 1:
        raise ValueError(f"cannot average {n} checkpoints")
    for _ in range(_PATIENCE):
        steps = _steps_to_average(run, n, by)
        try:
            return _mean_parameters(run, steps), steps
        except CheckpointError:
            # Training removes old ones.
            if all(is_there(run.checkpoints / str(step)) for step in steps):
                raise
    raise CheckpointError(f"{run}: its checkpoints are replaced faster than they can be read")


def _steps_to_average(run: RunDirectory, n: int, by: Literal["latest", "best"]) -> list[int]:
    if by == "best":
        steps = sorted(best_steps(run.checkpoints, n))
        _warn_without_rank(run)
        if len(steps) < n:
            raise CheckpointError(
                f"{run}: cannot average {n} validated checkpoints, there are {len(steps)} (steps "
                f"{listed(steps)}); average fewer (--best {len(steps)}), or keep more with a "
                "higher training.keep_best"
            )
        return steps

    steps = regular_steps(run.checkpoints)[-n:]
    if not steps:
        raise CheckpointError(
            f"{run}: cannot average {n} regular checkpoints, there are 0 (steps none; those of a "
            "start, a stop or an earlier end don't count); train longer, or keep more with a "
            "higher training.keep_for_average"
        )
    if len(steps) < n:
        raise CheckpointError(
            f"{run}: cannot average {n} regular checkpoints, there are {len(steps)} (steps "
            f"{listed(steps)}; those of a start, a stop or an earlier end don't count); average "
            f"fewer (--last {len(steps)}), or keep more with a higher training.keep_for_average"
        )
    return steps


def _mean_parameters(run: RunDirectory, steps: Sequence[int]) -> dict[str, Any]:
    import jax
    import numpy as np

    from flaxformer_mt.rundir.checkpoint_format import read_weights

    total: Any = None
    first_form: Any = None
    for step in steps:
        arrays = jax.tree.map(np.asarray, read_weights(run.checkpoints / str(step)))
        form = jax.tree.map(lambda array: (array.shape, str(array.dtype)), arrays)
        if total is None:
            total = jax.tree.map(lambda array: array.astype(np.float64), arrays)
            first_form = form
            continue
        if form != first_form:
            raise CheckpointError(
                f"{run}: checkpoints {steps[0]} and {step} belong to different models"
            )
        jax.tree.map(lambda sum_, array: np.add(sum_, array, out=sum_), total, arrays)
    mean: dict[str, Any] = jax.tree.map(
        lambda sum_, array: (sum_ / len(steps)).astype(array.dtype), total, arrays
    )
    return mean


def write_average(run: RunDirectory, params: Any, steps: Sequence[int]) -> None:
    """Stores averaged parameters as `checkpoints/average`. Raises CheckpointError.

    On a disk, several may be written at a time: each waits for the one before, and the last stays.
    """
    import orbax.checkpoint as ocp

    from flaxformer_mt.rundir.checkpoint_format import composite, first_line, hush

    hush()
    check_writable(run.checkpoints)
    place = run.checkpoints / AVERAGE
    meta = {"steps": list(steps), "newest": max([*steps, *list_steps(run.checkpoints)])}
    arguments = composite({"params": params}, {"meta": meta})
    try:
        if is_remote(place):
            remove(place)
            with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as writer:
                writer.save(place, args=arguments)
            return
        with _averaging(run.checkpoints) as aside:
            with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as writer:
                writer.save(aside, args=arguments)
            _put_in_place(aside, place)
    except Exception as error:  # Orbax and TensorStore raise anything.
        raise CheckpointError(f"{place}: cannot be written: {first_line(error)}") from error


@contextlib.contextmanager
def _averaging(directory: Path) -> Iterator[Path]:
    """Yields a folder for one of several simultaneous writers to make an average in."""
    aside = directory / f"{_ASIDE}.{os.getpid()}.{threading.get_ident()}"
    directory.mkdir(exist_ok=True)
    # The folder itself is locked: the run's lock is held while it trains.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        leftovers = f"{_ASIDE}*"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:  # a file system without locks: others may be at work
            leftovers = f"{aside.name}*"
        for leftover in directory.glob(leftovers):
            shutil.rmtree(leftover)
        yield aside
    finally:
        os.close(descriptor)


def _put_in_place(aside: Path, place: Path) -> None:
    """Renames a folder, which readers find whole at any moment, and removes the earlier one.

    The earlier one is renamed before: half removed, it would still be taken for an average.
    """
    before = aside
    if not place.exists():
        aside.rename(place)
        return
    try:
        exchange(aside, place)
    except OSError:  # not on every file system
        before = aside.with_name(f"{aside.name}{_BEFORE}")
        place.rename(before)
        aside.rename(place)
    remove(before)
