"""Ways to keep a batch that does not fit: fewer rows at a time, or activations computed again."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.planning.plan import Plan

_MOST = 64  # micro-batches: beyond that another chip is the remedy


@dataclasses.dataclass(frozen=True)
class Remedy:
    """A config that keeps the batch, in more micro-batches or with remat, and what it takes."""

    config: ExperimentConfig
    plan: Plan

    def flags(self, before: ExperimentConfig) -> str:
        """What differs from the config before, as flags of `train`."""
        settings = {
            "training.optimizer.accumulation": lambda config: (
                config.training.optimizer.accumulation
            ),
            "model.remat": lambda config: str(config.model.remat).lower(),
            "data.batch.multiple": lambda config: config.data.batch.multiple,
        }
        return " ".join(
            f"--config.{name}={value(self.config)}"
            for name, value in settings.items()
            if value(self.config) != value(before)
        )


def remedies(
    measure: Callable[[int, bool], Remedy | None], *, accumulation: int, remat: bool
) -> list[Remedy]:
    """What was tried, in order, for a batch that does not fit as it is.

    Recomputation alone; then twice as many micro-batches again and again until these fit without
    it; then with it, up to as many. More micro-batches than fit are no gain: each reads all
    parameters. `measure` compiles for a number of micro-batches, with or without remat; None: the
    batch cannot be split into so many, nor into more.
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
        split_until_it_fits(False, _MOST)
        return tried
    enough = split_until_it_fits(remat, _MOST)
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
