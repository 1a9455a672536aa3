"""What fits: a config's or a chip's largest batch, and ways to keep a given batch."""

import math
from collections.abc import Callable, Iterable, Sequence

from flaxformer_mt.config import ExperimentConfig, flatten, freeze, thaw
from flaxformer_mt.data.plan import Shape, longest, rows_within
from flaxformer_mt.planning.plan import Plan, PlanningError, check_length

_TARGET = 0.97  # of the memory that the compiler grants
_ENOUGH = 0.9
_COMPILES = 8
_MOST_PARTS = 64  # micro-batches: beyond that, take another chip
_LEAP = 16  # times the rows that fit: memory may grow faster than linearly
_REMEDIED = ("training.optimizer.accumulation", "model.remat", "data.batch.multiple")


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
    tried: dict[int, Plan] = {}

    def look(rows: int) -> Plan:
        rows = max(rows // multiple, 1) * multiple
        if rows not in tried:
            tried[rows] = measure(rows)
        return tried[rows]

    look(2 * start if look(start).fits else start // 2)
    while True:
        by_rows = sorted(tried.values(), key=lambda plan: plan.shape.rows)
        fits = largest(by_rows)
        fails = next((plan for plan in by_rows if not plan.fits), None)
        enough = fits and fits.needed_bytes >= _ENOUGH * fits.available_bytes
        if len(tried) >= _COMPILES or enough:
            break
        least, most = 0, _LEAP * fits.shape.rows if fits else 0
        if fits and fails:
            # A guess close to an end of the bracket would teach little.
            apart = max((fails.shape.rows - fits.shape.rows) // 8, multiple)
            least = fits.shape.rows + apart
            most = fails.shape.rows - apart
        elif fits:
            least = 2 * fits.shape.rows
        elif fails:
            most = fails.shape.rows // 2
        if most < max(least, multiple):
            break
        a, b = (fits, fails) if fits and fails else (by_rows[0], by_rows[-1])
        guess = 2 * max(a.shape.rows, b.shape.rows)
        if a.needed_bytes != b.needed_bytes:
            # Where the line through both plans' memory reaches the target.
            slope = (b.needed_bytes - a.needed_bytes) / (b.shape.rows - a.shape.rows)
            guess = int(a.shape.rows + (_TARGET * a.available_bytes - a.needed_bytes) / slope)
        look(min(max(guess, least), most))
    return list(tried.values())


def largest(tried: Iterable[Plan]) -> Plan | None:
    """The one of most rows that fits."""
    fitting = (plan for plan in tried if plan.fits)
    return max(fitting, key=lambda plan: plan.shape.rows, default=None)


def try_remedies(
    measure: Callable[[int, bool], bool | None], *, accumulation: int, remat: bool
) -> None:
    """For a batch that doesn't fit, in order: only remat; then doubling micro-batches without it
    until these fit; then with it, up to as many. `measure(micro_batches, remat)` says whether it
    fits; None: the batch can't be split that far."""

    def split_until_it_fits(count: int, again: bool, most: int) -> int:
        while count <= most and (fits := measure(count, again)) is not None:
            if fits:
                return count
            count *= 2
        return most + 1

    if not remat and split_until_it_fits(accumulation, True, accumulation) == accumulation:
        split_until_it_fits(2 * accumulation, False, _MOST_PARTS)
        return
    enough = split_until_it_fits(2 * accumulation, remat, _MOST_PARTS)
    if not remat:
        split_until_it_fits(2 * accumulation, True, enough - 1)


def applied(
    config: ExperimentConfig, *, accumulation: int, remat: bool, split: int
) -> ExperimentConfig:
    """The config with a remedy; rows are a multiple of micro-batches times `split` devices."""
    multiple = math.lcm(config.data.batch.multiple, split * accumulation)
    made = thaw(config)
    made.training.optimizer.accumulation = accumulation
    made.model.remat = remat
    made.data.batch.multiple = multiple
    return freeze(made, config.name)


def flags(before: ExperimentConfig, after: ExperimentConfig) -> str:
    """What a remedy changes, as flags of `train`."""
    old, new = flatten(before), flatten(after)
    changed = {key: str(new[key]).lower() for key in _REMEDIED if new[key] != old[key]}
    return " ".join(f"--config.{key}={value}" for key, value in changed.items())
