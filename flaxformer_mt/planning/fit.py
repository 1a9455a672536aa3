"""What fits: a config's or a chip's largest batch, and ways to keep a given batch."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from flaxformer_mt.config import ExperimentConfig, flatten, freeze, thaw
from flaxformer_mt.data.plan import Shape, longest, rows_within
from flaxformer_mt.planning.plan import Plan, PlanningError, check_length

# Of the memory that the compiler grants; the rest is less than one step of the search.
_TARGET = 0.97
_ENOUGH = 0.9
_COMPILES = 8
_MOST_PARTS = 64  # micro-batches: beyond that another chip is the remedy
_LEAP = 16  # times the rows that fit: memory may grow faster than the first two say
_REMEDIED = ("training.optimizer.accumulation", "model.remat", "data.batch.multiple")


def largest_shape(config: ExperimentConfig, shapes: Sequence[Shape] = ()) -> Shape:
    """The shape that takes the most memory: the longest of `shapes`, or of what the config allows.

    Without data that is the filter's longest pair, or a packed batch's row, if the config says how
    long that is. Raises PlanningError.
    """
    if shapes:
        return longest(shapes)
    batch, length = config.data.batch, config.data.filter.max_length
    if batch.form == "bucket":
        return shape_of(config, length, length)
    if not batch.src_length:
        raise PlanningError(
            "packed rows ('data.batch.form' = 'pack') get their length from the data: give a "
            "prepared run with --workdir, or --lengths SRC,TGT, or set data.batch.src_length and "
            ".tgt_length"
        )
    return shape_of(config, batch.src_length, batch.tgt_length)


def shape_of(config: ExperimentConfig, src_length: int, tgt_length: int) -> Shape:
    """Rows of these lengths, as many as the config's budget holds.

    Raises PlanError if there is none, and PlanningError for rows that training would not make:
    without packing a row is one pair.
    """
    batch, length = config.data.batch, max(src_length, tgt_length)
    if batch.form == "bucket":
        check_length(config, length)
    return Shape(rows_within(batch, length), src_length, tgt_length)


@dataclasses.dataclass(frozen=True)
class Need:
    """Memory that a batch of `rows` rows takes on each device, or would take."""

    rows: int
    needed: int
    available: int
    fits: bool


@dataclasses.dataclass(frozen=True)
class Fit:
    """`largest` is None where not even the smallest batch fits; `tried` is every compilation."""

    largest: Need | None
    tried: tuple[Need, ...]


def search(measure: Callable[[int], Need], *, start: int, multiple: int) -> Fit:
    """The most rows, a multiple of `multiple`, for which `measure` says that they fit.

    Each guess is read off a line through two measurements: one on either side of the limit as soon
    as there are such. Ends within a tenth of the memory, or after a few compilations.
    """
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
        if fits and fails:
            # The ends of the bracket are known: a guess close to one of them would teach little.
            gap = fails.rows - fits.rows
            if gap <= multiple:
                break
            guess = min(max(_crossing(fits, fails), fits.rows + gap // 8), fails.rows - gap // 8)
            guess = min(max(guess, fits.rows + multiple), fails.rows - multiple)
        elif fits:
            guess = min(max(_crossing(by_rows[0], fits), 2 * fits.rows), _LEAP * fits.rows)
        elif fails and fails.rows > multiple:
            guess = min(_crossing(fails, by_rows[-1]), fails.rows // 2)
        else:
            break
        look(guess)
    return Fit(fits, tuple(tried.values()))


def _crossing(a: Need, b: Need) -> int:
    """Rows at which the line through two measurements reaches the target; 0 below the first row."""
    if a.needed == b.needed:
        return 2 * max(a.rows, b.rows)
    slope = (b.needed - a.needed) / (b.rows - a.rows)
    return max(int(a.rows + (_TARGET * a.available - a.needed) / slope), 0)


@dataclasses.dataclass(frozen=True)
class Remedy:
    """A config that keeps the batch, in more micro-batches or with remat, and what it takes."""

    config: ExperimentConfig
    plan: Plan

    def flags(self, before: ExperimentConfig) -> str:
        """What differs from the config before, as flags of `train`."""
        old, new = flatten(before), flatten(self.config)
        changed = {key: str(new[key]).lower() for key in _REMEDIED if new[key] != old[key]}
        return " ".join(f"--config.{key}={value}" for key, value in changed.items())


def remedies(
    measure: Callable[[int, bool], Remedy | None], *, accumulation: int, remat: bool
) -> list[Remedy]:
    """What was tried, in order, for a batch that does not fit as it is.

    Recomputation alone; then twice as many micro-batches again and again until these fit without
    it; then with it, up to as many: each reads all parameters. `measure` compiles for a number of
    micro-batches, with or without remat; None: the batch cannot be split that far.
    """
    tried: list[Remedy] = []

    def split_until_it_fits(count: int, again: bool, most: int) -> int:
        """From `count` micro-batches on; those that fit, or one more than `most`."""
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
    """The config with a remedy, its batches' rows a multiple of what they are split into.

    `split` is the number of devices that share a batch's rows.
    """
    multiple = math.lcm(config.data.batch.multiple, split * accumulation)
    made = thaw(config)
    made.training.optimizer.accumulation = accumulation
    made.model.remat = remat
    made.data.batch.multiple = multiple
    return freeze(made, config.name)
