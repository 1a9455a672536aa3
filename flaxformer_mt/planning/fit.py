"""What fits: the largest batch of a config, the largest batch of a chip, ways to keep one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.plan import Shape, longest
from flaxformer_mt.errors import UserError
from flaxformer_mt.planning.plan import Plan

# Of the memory that the compiler grants; what is left is less than a step of the search is worth.
_TARGET = 0.97
_ENOUGH = 0.9
_COMPILES = 8
_MOST_PARTS = 64  # micro-batches: beyond that another chip is the remedy
_LEAP = 16  # times the rows that fit: memory may grow faster than the first two say


class PlanningError(UserError):
    """A config that cannot be planned for as it is."""


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
            "the length of a packed row ('data.batch.form' = 'pack') is chosen for the data, and "
            "there is none: name a prepared run with --workdir, give --lengths SRC,TGT, or set "
            "data.batch.src_length and .tgt_length"
        )
    return shape_of(config, batch.src_length, batch.tgt_length)


def shape_of(config: ExperimentConfig, src_length: int, tgt_length: int) -> Shape:
    """Rows of these lengths, as many as the config's budget holds.

    Raises PlanningError for rows that training would not make: without packing a row is one pair.
    """
    batch = config.data.batch
    if batch.form == "bucket":
        check_length(config, max(src_length, tgt_length))
    rows = batch.tokens // max(src_length, tgt_length) // batch.multiple * batch.multiple
    if rows == 0:
        raise PlanningError(
            f"data.batch.multiple = {batch.multiple} rows of {max(src_length, tgt_length)} "
            f"positions exceed data.batch.tokens = {batch.tokens:,}: raise it, or lower "
            "data.filter.max_length or data.batch.multiple"
        )
    return Shape(rows, src_length, tgt_length)


def check_length(config: ExperimentConfig, length: int) -> None:
    """Raises PlanningError for a sentence that the model does not take."""
    if length > config.model.max_length:
        raise PlanningError(
            f"a sentence of {length} tokens is longer than 'model.max_length' = "
            f"{config.model.max_length} lets in: give shorter --lengths, or raise it"
        )


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

    def best() -> Need | None:
        return max((n for n in tried.values() if n.fits), key=lambda n: n.rows, default=None)

    first = look(start)
    look(2 * start if first.fits else start // 2)
    while len(tried) < _COMPILES:
        fits = best()
        fails = min((n for n in tried.values() if not n.fits), key=lambda n: n.rows, default=None)
        if fits is not None and fails is not None:
            if fits.needed >= _ENOUGH * fits.available or fails.rows - fits.rows <= multiple:
                break
            # The ends of the bracket are known: a guess close to one of them would teach little.
            gap = fails.rows - fits.rows
            guess = min(max(_crossing(fits, fails), fits.rows + gap // 8), fails.rows - gap // 8)
            guess = min(max(guess, fits.rows + multiple), fails.rows - multiple)
        elif fits is not None:
            if fits.needed >= _ENOUGH * fits.available:
                break
            smaller = min(tried.values(), key=lambda n: n.rows)
            guess = min(max(_crossing(smaller, fits), 2 * fits.rows), _LEAP * fits.rows)
        else:
            assert fails is not None
            if fails.rows == multiple:
                break
            larger = max(tried.values(), key=lambda n: n.rows)
            guess = min(_crossing(fails, larger), fails.rows // 2)
        look(guess)
    return Fit(best(), tuple(tried.values()))


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
        old, new = (
            {
                "training.optimizer.accumulation": config.training.optimizer.accumulation,
                "model.remat": str(config.model.remat).lower(),
                "data.batch.multiple": config.data.batch.multiple,
            }
            for config in (before, self.config)
        )
        return " ".join(f"--config.{key}={new[key]}" for key in new if new[key] != old[key])


def remedies(
    measure: Callable[[int, bool], Remedy | None], *, accumulation: int, remat: bool
) -> list[Remedy]:
    """What was tried, in order, for a batch that does not fit as it is.

    Recomputation alone; then twice as many micro-batches again and again until these fit without
    it; then with it, up to as many: each reads all parameters. `measure` compiles for a number of
    micro-batches, with or without remat; None: the batch cannot be split into so many or more.
    """
    tried: list[Remedy] = []

    def look(count: int, again: bool) -> bool | None:
        """Whether it fits; None where there is no such batch."""
        if (found := measure(count, again)) is None:
            return None
        tried.append(found)
        return found.plan.fits

    def split_until_it_fits(again: bool, most: int) -> int:
        """The micro-batches that fit, or one more than `most`."""
        count = 2 * accumulation
        while count <= most and (fits := look(count, again)) is not None:
            if fits:
                return count
            count *= 2
        return most + 1

    if not remat and look(accumulation, True):
        split_until_it_fits(False, _MOST_PARTS)
        return tried
    enough = split_until_it_fits(remat, _MOST_PARTS)
    if not remat:
        split_until_it_fits(True, enough - 1)
    return tried


def quickest(tried: Sequence[Remedy]) -> Remedy | None:
    """Of those that fit the one that gets through the most positions a second."""
    fitting = [remedy for remedy in tried if remedy.plan.fits]
    return max(fitting, key=lambda remedy: remedy.plan.positions_per_second, default=None)


def applied(
    config: ExperimentConfig, *, accumulation: int, remat: bool, split: int
) -> ExperimentConfig:
    """The config with a remedy, its batches' rows a multiple of what they are split into.

    `split` is the number of devices that share a batch's rows.
    """
    training, data = config.training, config.data
    optimizer = dataclasses.replace(training.optimizer, accumulation=accumulation)
    multiple = math.lcm(data.batch.multiple, split * accumulation)
    batch = dataclasses.replace(data.batch, multiple=multiple)
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, remat=remat),
        training=dataclasses.replace(training, optimizer=optimizer),
        data=dataclasses.replace(data, batch=batch),
    )
