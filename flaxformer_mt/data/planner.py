"""From a store to planned windows: which batches there are, before any token is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Generator
from concurrent.futures import ThreadPoolExecutor

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.bucket import plan_buckets, shapes_for
from flaxformer_mt.data.order import Order
from flaxformer_mt.data.pack import packed_shape, plan_packed
from flaxformer_mt.data.plan import Plan, PlanError, Rows, Shape, stream
from flaxformer_mt.data.position import Position
from flaxformer_mt.data.sampling import Resampler
from flaxformer_mt.data.store import TokenPairs

# Drawing a window's segmentations takes some 60 microseconds a pair, and the first batch waits.
_SAMPLED_WINDOW = 1 << 15


@dataclasses.dataclass(frozen=True)
class Window:
    """A planned window: its batches name pairs of `pairs`."""

    pairs: TokenPairs
    plan: Plan


class Planner:
    """Plans any window of any epoch, each a pure function of the arguments.

    Raises:
      PlanError: no plan is possible.
    """

    def __init__(
        self,
        pairs: TokenPairs,
        batch: BatchConfig,
        seed: int,
        *,
        epoch_pairs: int = 0,
        resampler: Resampler | None = None,
    ) -> None:
        self._pairs, self._seed, self._resampler = pairs, seed, resampler
        counts = pairs.length_counts()
        self._packed = batch.form == "pack"
        self.shapes: tuple[Shape, ...] = (
            (packed_shape(counts[0], counts[1], batch, counts[2]),)
            if self._packed
            else shapes_for(counts[0], counts[1], batch, counts[2])
        )
        window = batch.window if resampler is None else min(batch.window, _SAMPLED_WINDOW)
        self.order = Order(pairs.parts, seed, window, epoch_pairs)

    def window(self, epoch: int, window: int) -> Window:
        """The batches of a window."""
        indices, pairs = self.order.pairs(epoch, window), self._pairs
        if self._resampler is not None:
            limit = self.shapes[-1]
            pairs = self._resampler.draw(
                pairs, indices, epoch, (limit.src_length, limit.tgt_length)
            )
            src_lengths, tgt_lengths = pairs.src_lengths, pairs.tgt_lengths
        else:
            src_lengths, tgt_lengths = (
                pairs.sides[side].lengths(indices) for side in ("src", "tgt")
            )
        random = stream(self._seed, epoch, window)
        plan = (
            plan_packed(src_lengths, tgt_lengths, self.shapes[0], random)
            if self._packed
            else plan_buckets(src_lengths, tgt_lengths, self.shapes, random)
        )
        if self._resampler is None:
            plan = dataclasses.replace(plan, pairs=indices[plan.pairs])
        return Window(pairs, plan)


@dataclasses.dataclass(frozen=True)
class Planned:
    """A batch to be put together, its place in the stream and the place of the one after it."""

    pairs: TokenPairs
    shape: Shape
    rows: Rows
    position: Position
    after: Position
    batches: int
    """Batches of its window."""


def planned_batches(
    planner: Planner, position: Position, skip: Collection[Position] = ()
) -> Generator[Planned, None, None]:
    """Every batch from the one at `position` on, endlessly, those in `skip` left out.

    The window after the one being read is planned meanwhile; closing the iterator ends that.

    Raises:
      PlanError: `position` lies outside its window: the position of another store or batch size.
    """
    windows = planner.order.windows
    if position.epoch < 0 or not 0 <= position.window < windows:
        raise PlanError(_elsewhere(position, f"an epoch of {windows:,} windows"))
    with ThreadPoolExecutor(1, thread_name_prefix="plan") as ahead:
        window = planner.window(position.epoch, position.window)
        if not 0 <= position.index <= len(window.plan):
            raise PlanError(_elsewhere(position, f"a window of {len(window.plan):,} batches"))
        while True:
            following = _next_window(position, windows)
            pending = ahead.submit(planner.window, following.epoch, following.window)
            for index in range(position.index, len(window.plan)):
                here = dataclasses.replace(position, index=index)
                last = index + 1 == len(window.plan)
                after = following if last else dataclasses.replace(position, index=index + 1)
                if here not in skip:
                    yield Planned(window.pairs, *window.plan[index], here, after, len(window.plan))
            position, window = following, pending.result()


def _next_window(position: Position, windows: int) -> Position:
    if position.window + 1 < windows:
        return Position(position.epoch, position.window + 1, 0)
    return Position(position.epoch + 1, 0, 0)


def _elsewhere(position: Position, inside: str) -> str:
    return f"{position} lies outside {inside}: it belongs to another corpus or data.batch setting"
