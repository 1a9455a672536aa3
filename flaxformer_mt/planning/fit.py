"""What fits: a config's or a chip's largest batch, and ways to keep a given batch."""

import math
from collections.abc import Callable, Iterable, Sequence

from flaxformer_mt.config import ExperimentConfig, flatten, freeze, thaw
from flaxformer_mt.data.plan import Shape, longest, rows_within
from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.plan import Plan, check_length

_TARGET = 0.97  # of the memory that the compiler grants
_ENOUGH = 0.9
_COMPILES = 8
_LEAP = 16  # times the rows that fit: memory may grow faster than linearly


def largest_shape(config: ExperimentConfig, shapes: Sequence[Shape] = ()) -> Shape:
    """The shape that takes the most memory: the longest of `shapes`, or that the config allows.
    Raises PlanningError if the config leaves a packed row's length to the data."""
    if shapes:
        return longest(shapes)
    batch = config.data.batch
    length = config.data.filter.max_length
    if batch.form == "bucket":
        return shape_of(config, length, length)
    if not batch.src_length:
        what = "the length of packed rows ('data.batch.form' = 'pack') is not known"
        raise PlanningError(f"{what}: give --workdir, --lengths SRC,TGT, or data.batch.src_length")
    return shape_of(config, batch.src_length, batch.tgt_length)


def shape_of(config: ExperimentConfig, src_length: int, tgt_length: int) -> Shape:
    """As many rows of these lengths as the budget holds. Raises PlanError, PlanningError."""
    batch = config.data.batch
    length = max(src_length, tgt_length)
    if batch.form == "bucket":
        check_length(config, length)
    return Shape(rows_within(batch, length), src_length, tgt_length)


def search(measure: Callable[[int], Plan], *, start: int, multiple: int) -> list[Plan]:
    """What was tried to find the most rows, a multiple of `multiple`, that fit: guesses lie on the
    line through two plans. Ends within a tenth of the memory or after a few compilations."""
    tried: list[Plan] = []
    fits: Plan | None = None  # of the most rows
    fails: Plan | None = None  # of the fewest
    guess = start
    while True:
        plan = measure(max(guess // multiple, 1) * multiple)
        tried.append(plan)
        fits, fails = (plan, fails) if plan.fits else (fits, plan)
        enough = fits and fits.needed_bytes >= _ENOUGH * fits.available_bytes
        if len(tried) >= _COMPILES or enough:
            return tried
        least, most = 0, plan.shape.rows // 2
        if fits and fails:
            # A guess close to an end of the bracket would teach little.
            apart = max((fails.shape.rows - fits.shape.rows) // 8, multiple)
            least, most = fits.shape.rows + apart, fails.shape.rows - apart
        elif fits:
            least, most = 2 * fits.shape.rows, _LEAP * fits.shape.rows
        if most < max(least, multiple):
            return tried
        a, b = (fits, fails) if fits and fails else (tried[0], plan)
        guess = 2 * plan.shape.rows
        if a.needed_bytes != b.needed_bytes:
            # Where the line through both plans' memory reaches the target.
            slope = (b.needed_bytes - a.needed_bytes) / (b.shape.rows - a.shape.rows)
            guess = int(a.shape.rows + (_TARGET * a.available_bytes - a.needed_bytes) / slope)
        guess = min(max(guess, least), most)


def largest(tried: Iterable[Plan]) -> Plan | None:
    """The one of most rows that fits."""
    fitting = (plan for plan in tried if plan.fits)
    return max(fitting, key=lambda plan: plan.shape.rows, default=None)


def remedied(
    config: ExperimentConfig, *, accumulation: int, remat: bool, split: int
) -> tuple[ExperimentConfig, str]:
    """The config in micro-batches, with remat or without, and what that changes, as flags of
    `train`; rows are a multiple of micro-batches times `split` devices."""
    settings = {
        "training.optimizer.accumulation": accumulation,
        "model.remat": remat,
        "data.batch.multiple": math.lcm(config.data.batch.multiple, split * accumulation),
    }
    before, made = flatten(config), thaw(config)
    made.update_from_flattened_dict(settings)
    changed = {key: str(new).lower() for key, new in settings.items() if new != before[key]}
    flags = " ".join(f"--config.{key}={value}" for key, value in changed.items())
    return freeze(made, config.name), flags
