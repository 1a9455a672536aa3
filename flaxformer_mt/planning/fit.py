"""A config's or a chip's largest batch that fits, and ways to keep a given batch."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from flaxformer_mt.config import ExperimentConfig, flatten, freeze, thaw
from flaxformer_mt.config.kinds import Bucketed, Packed
from flaxformer_mt.data.plan import Shape, longest, rows_within
from flaxformer_mt.planning import PlanningError
from flaxformer_mt.planning.plan import StepPlan, check_length

_TARGET = 0.97  # of the memory that the compiler grants
_ENOUGH = 0.9
_COMPILES = 8
_LEAP = 16  # times the rows that fit: memory may grow faster than linearly


def largest_shape(config: ExperimentConfig, shapes: Sequence[Shape] = ()) -> Shape:
    """The shape that takes the most memory: the longest of `shapes`, or that the config allows.
    Raises PlanningError if the config leaves a packed row's length to the data."""
    if shapes:
        return longest(shapes)
    match config.data.batch.layout:
        case Bucketed():
            length = config.data.filter.max_length
            return shape_of(config, length, length)
        case Packed(src_length=0):
            raise PlanningError(
                "the length of packed rows ('data.batch.form' = 'pack') is not known: set "
                "data.batch.src_length and .tgt_length; `plan` also takes --lengths SRC,TGT, or "
                "--workdir of a prepared run"
            )
        case Packed(src_length=src_length, tgt_length=tgt_length):
            return shape_of(config, src_length, tgt_length)
        case unknown:
            assert_never(unknown)


def shape_of(config: ExperimentConfig, src_length: int, tgt_length: int) -> Shape:
    """As many rows of these lengths as the budget holds. Raises PlanError, PlanningError."""
    batch = config.data.batch
    length = max(src_length, tgt_length)
    if isinstance(batch.layout, Bucketed):
        check_length(config, length)
    return Shape(rows_within(batch, length), src_length, tgt_length)


def search(measure: Callable[[int], StepPlan], *, start: int, multiple: int) -> list[StepPlan]:
    """The plans tried to find the most rows, a multiple of `multiple`, that fit.

    Guesses lie on the line through two plans. Ends within a tenth of the memory or after a few
    compilations.
    """
    tried: list[StepPlan] = []
    fits: StepPlan | None = None  # the one of most rows
    fails: StepPlan | None = None  # the one of fewest
    guess = start
    while True:
        plan = measure(max(guess // multiple, 1) * multiple)
        tried.append(plan)
        if plan.fits:
            fits = plan
        else:
            fails = plan
        is_full = fits and fits.needed_bytes >= _ENOUGH * fits.available_bytes
        if len(tried) >= _COMPILES or is_full:
            return tried

        least, most = _bounds(fits, fails, multiple)
        if most < max(least, multiple):
            return tried
        first, second = (fits, fails) if fits and fails else (tried[0], plan)
        guess = 2 * plan.shape.rows
        if first.needed_bytes != second.needed_bytes:
            guess = _rows_on_line(first, second)
        guess = min(max(guess, least), most)


def _bounds(fits: StepPlan | None, fails: StepPlan | None, multiple: int) -> tuple[int, int]:
    """Least and most rows to try next, if these are the best plans so far."""
    if fits and fails:
        # A guess close to an end of the bracket would teach little.
        apart = max((fails.shape.rows - fits.shape.rows) // 8, multiple)
        return fits.shape.rows + apart, fails.shape.rows - apart
    if fits:
        return 2 * fits.shape.rows, _LEAP * fits.shape.rows
    assert fails is not None
    return 0, fails.shape.rows // 2


def _rows_on_line(first: StepPlan, second: StepPlan) -> int:
    """Rows at which the line through both plans' memory reaches the target."""
    slope = (second.needed_bytes - first.needed_bytes) / (second.shape.rows - first.shape.rows)
    return int(first.shape.rows + (_TARGET * first.available_bytes - first.needed_bytes) / slope)


def largest(tried: Iterable[StepPlan]) -> StepPlan | None:
    """The one of most rows that fits."""
    fitting = (plan for plan in tried if plan.fits)
    return max(fitting, key=lambda plan: plan.shape.rows, default=None)


def remedied(
    config: ExperimentConfig, *, accumulation: int, remat: bool, split: int
) -> tuple[ExperimentConfig, str]:
    """The config in micro-batches, with remat or without, and the changed flags of `train`.

    Rows are a multiple of micro-batches times `split` devices.
    """
    settings = {
        "training.optimizer.accumulation": accumulation,
        "model.remat": remat,
        "data.batch.multiple": math.lcm(config.data.batch.multiple, split * accumulation),
    }
    former_settings = flatten(config)
    flags = " ".join(
        f"--config.{key}={str(new).lower()}"
        for key, new in settings.items()
        if new != former_settings[key]
    )
    remedied_tree = thaw(config)
    remedied_tree.update_from_flattened_dict(settings)
    return freeze(remedied_tree, config.name), flags
