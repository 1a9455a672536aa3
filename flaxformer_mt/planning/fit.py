"""What fits: a config's or a chip's largest batch, and ways to keep a given batch."""

import dataclasses
import math
from collections.abc import Callable, Sequence

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
    batch, length = config.data.batch, config.data.filter.max_length
    if batch.form == "bucket":
        return shape_of(config, length, length)
    if not batch.src_length:
        what = "the length of packed rows ('data.batch.form' = 'pack') is not known"
        raise PlanningError(f"{what}: give --workdir, --lengths SRC,TGT, or data.batch.src_length")
    return shape_of(config, batch.src_length, batch.tgt_length)


def shape_of(config: ExperimentConfig, src_length: int, tgt_length: int) -> Shape:
    """As many rows of these lengths as the budget holds. Raises PlanError, PlanningError."""
    batch, length = config.data.batch, max(src_length, tgt_length)
    if batch.form == "bucket":
        check_length(config, length)
    return Shape(rows_within(batch, length), src_length, tgt_length)


@dataclasses.dataclass(frozen=True)
class Need:
    """Memory that a batch of `rows` rows takes, or would take, on each device."""

    rows: int
    needed: int
    available: int
    fits: bool


@dataclasses.dataclass(frozen=True)
class Fit:
    """The `largest` that fits, if any, and every compilation `tried`."""

    largest: Need | None
    tried: tuple[Need, ...]


def search(measure: Callable[[int], Need], *, start: int, multiple: int) -> Fit:
    """The most rows, a multiple of `multiple`, that fit by `measure`: guesses lie on the line
    through two measurements. Ends within a tenth of the memory or after a few compilations."""
    tried: dict[int, Need] = {}

    def look(rows: int) -> Need:
        rows = max(rows // multiple, 1) * multiple
        if rows not in tried:
            tried[rows] = measure(rows)
        return tried[rows]

    look(2 * start if look(start).fits else start // 2)
    while True:
        by_rows = sorted(tried.values(), key=lambda need: need.rows)
        fits = next((need for need in reversed(by_rows) if need.fits), None)
        fails = next((need for need in by_rows if not need.fits), None)
        if len(tried) >= _COMPILES or (fits and fits.needed >= _ENOUGH * fits.available):
            break
        least, most = 0, _LEAP * fits.rows if fits else 0
        if fits and fails:
            # A guess close to an end of the bracket would teach little.
            apart = max((fails.rows - fits.rows) // 8, multiple)
            least, most = fits.rows + apart, fails.rows - apart
        elif fits:
            least = 2 * fits.rows
        elif fails:
            most = fails.rows // 2
        if most < max(least, multiple):
            break
        pair = (fits, fails) if fits and fails else (by_rows[0], by_rows[-1])
        look(min(max(_crossing(*pair), least), most))
    return Fit(fits, tuple(tried.values()))


def _crossing(a: Need, b: Need) -> int:
    """Rows at which the line through two measurements reaches the target, at least 0."""
    if a.needed == b.needed:
        return 2 * max(a.rows, b.rows)
    slope = (b.needed - a.needed) / (b.rows - a.rows)
    return max(int(a.rows + (_TARGET * a.available - a.needed) / slope), 0)


@dataclasses.dataclass(frozen=True)
class Remedy:
    """A config that keeps the batch by more micro-batches or remat, and its plan."""

    config: ExperimentConfig
    plan: Plan

    def flags(self, before: ExperimentConfig) -> str:
        """What it changes, as flags of `train`."""
        old, new = flatten(before), flatten(self.config)
        changed = {key: str(new[key]).lower() for key in _REMEDIED if new[key] != old[key]}
        return " ".join(f"--config.{key}={value}" for key, value in changed.items())


def remedies(
    measure: Callable[[int, bool], Remedy | None], *, accumulation: int, remat: bool
) -> list[Remedy]:
    """What was tried, in order, for a batch that doesn't fit: only remat; then doubling
    micro-batches without it until these fit; then with it, up to as many. `measure(micro_batches,
    remat)` compiles; None: the batch can't be split that far."""
    tried: list[Remedy] = []

    def split_until_it_fits(count: int, again: bool, most: int) -> int:
        while count <= most and (found := measure(count, again)) is not None:
            tried.append(found)
            if found.plan.fits:
                return count
            count *= 2
        return most + 1

    if not remat and split_until_it_fits(accumulation, True, accumulation) == accumulation:
        split_until_it_fits(2 * accumulation, False, _MOST_PARTS)
        return tried
    enough = split_until_it_fits(2 * accumulation, remat, _MOST_PARTS)
    if not remat:
        split_until_it_fits(2 * accumulation, True, enough - 1)
    return tried


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
