"""From a store to planned windows: which batches there are, before reading any token."""

import dataclasses
from collections.abc import Collection, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, assert_never

import numpy as np

from flaxformer_mt.config.kinds import Bucketed, Packed
from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.batch import WHOLE, Batch, Share, assemble
from flaxformer_mt.data.bucket import plan_buckets, plan_pass, shapes_for
from flaxformer_mt.data.order import Order, Position, StoredCorpus
from flaxformer_mt.data.pack import packed_shape, plan_packed
from flaxformer_mt.data.plan import BatchRows, Plan, PlanError, Shape, plan_bits
from flaxformer_mt.data.sampling import Resampler
from flaxformer_mt.data.store import LengthCounts, TokenPairs

# The first batch waits for a window, and drawing segmentations takes 15 to 60 microseconds a pair;
# but a window of few batches leaves many partly empty.
_SAMPLED_PAIRS = 1 << 15
_SAMPLED_BATCHES = 50
_VALIDATION_SHAPES = 4  # at most this many are compiled for validation


class PlannedWindow(NamedTuple):
    """A plan of the store's pairs, or of the window's own if segmentations are drawn."""

    pairs: TokenPairs
    plan: Plan

    @property
    def padding(self) -> float:
        """The share of positions on both sides without a token."""
        sides = self.pairs.sides.values()
        tokens = sum(int(side.lengths(self.plan.pairs).sum(dtype=np.int64)) for side in sides)
        return 1.0 - tokens / self.plan.positions


class Planner:
    """Plans any window of any epoch, each a pure function of the arguments. Raises PlanError."""

    def __init__(
        self,
        pairs: TokenPairs,
        batch: BatchConfig,
        seed: int,
        *,
        epoch_pairs: int = 0,
        resampler: Resampler | None = None,
    ) -> None:
        self.pairs = pairs
        self._seed = seed
        self._resampler = resampler
        src, tgt, counts = _expected_lengths(pairs)
        self._layout = batch.layout
        self.shapes: tuple[Shape, ...]
        match self._layout:
            case Packed():
                self.shapes = (packed_shape(src, tgt, batch, counts),)
            case Bucketed():
                self.shapes = shapes_for(src, tgt, batch, counts)
            case unknown:
                assert_never(unknown)

        self._longest = int(src.max()), int(tgt.max())
        window = batch.window
        if resampler is not None:
            pairs_a_batch = batch.tokens * counts.sum() / (np.maximum(src, tgt) * counts).sum()
            window = min(window, max(_SAMPLED_PAIRS, int(_SAMPLED_BATCHES * pairs_a_batch)))
        self.order = Order(pairs.corpora, seed, window, epoch_pairs)

    def window(self, epoch: int, window: int) -> PlannedWindow:
        """The plan of a window, whose pairs are split afresh where segmentations are drawn."""
        indices = self.order.pairs(epoch, window)
        pairs = self.pairs
        if self._resampler is not None:
            pairs = self._resampler.draw(pairs, indices, epoch, self._longest)
            indices = np.arange(len(pairs))

        src, tgt = (side.lengths(indices) for side in pairs.sides.values())
        random = plan_bits(self._seed, epoch, window)
        match self._layout:
            case Packed():
                plan = plan_packed(src, tgt, self.shapes[0], random)
            case Bucketed():
                plan = plan_buckets(src, tgt, self.shapes, random)
            case unknown:
                assert_never(unknown)
        return PlannedWindow(pairs, dataclasses.replace(plan, pairs=indices[plan.pairs]))


def _expected_lengths(pairs: TokenPairs) -> LengthCounts:
    """Source lengths, target lengths, and how often they occur together, in a mixture as drawn."""
    if not any(corpus.weight for corpus in pairs.corpora):
        return pairs.length_counts()
    total = sum(corpus.weight for corpus in pairs.corpora)
    by_corpus = []
    for corpus in pairs.corpora:
        src, tgt, counts = pairs.length_counts(corpus.first, corpus.first + corpus.size)
        drawn = counts * (corpus.weight / total * len(pairs) / corpus.size)
        by_corpus.append((src, tgt, np.maximum(np.round(drawn), 1).astype(np.int64)))
    src, tgt, counts = (np.concatenate(arrays) for arrays in zip(*by_corpus, strict=True))
    return src, tgt, counts


@dataclasses.dataclass(frozen=True)
class PositionedBatch:
    """A batch to assemble, its position and that of the next."""

    pairs: TokenPairs
    shape: Shape
    rows: BatchRows
    position: Position
    after: Position
    batches: int  # batches of its window

    def batch(self, share: Share = WHOLE) -> Batch:
        """Assembles it. Raises PlanError if the shares don't divide the rows."""
        return assemble(self.pairs, self.rows.pairs, self.shape, self.rows.counts, share)


def planned_batches(
    planner: Planner, position: Position, skip: Collection[Position] = ()
) -> Generator[PositionedBatch, None, None]:
    """Every batch from `position` on, endlessly, except those in `skip`. Raises PlanError.

    A thread plans the next window; closing the iterator ends it.
    """
    windows = planner.order.windows
    if position.epoch < 0 or not 0 <= position.window < windows:
        raise _elsewhere(position, f"an epoch of {windows:,} windows")
    with ThreadPoolExecutor(1, thread_name_prefix="plan") as ahead:
        window = planner.window(position.epoch, position.window)
        if not 0 <= position.index <= len(window.plan):
            raise _elsewhere(position, f"a window of {len(window.plan):,} batches")
        while True:
            turn, number = divmod(position.window + 1, windows)
            following = Position(position.epoch + turn, number)
            pending = ahead.submit(planner.window, following.epoch, following.window)
            batches = len(window.plan)
            for index in range(position.index, batches):
                current = dataclasses.replace(position, index=index)
                after = dataclasses.replace(position, index=index + 1)
                if index + 1 == batches:
                    after = following
                if current not in skip:
                    shape, rows = window.plan[index]
                    yield PositionedBatch(window.pairs, shape, rows, current, after, batches)
            position, window = following, pending.result()


def planned_pass(pairs: TokenPairs, batch: BatchConfig, corpus: StoredCorpus | None = None) -> Plan:
    """Validation's batches: every pair once, in order of length, or every pair of one `corpus`.

    All corpora have the same few shapes, each of which is compiled. Raises PlanError.
    """
    few = dataclasses.replace(batch, max_shapes=min(_VALIDATION_SHAPES, batch.max_shapes))
    try:
        shapes = shapes_for(*pairs.lengths, few)
    except PlanError as error:
        if len(pairs.corpora) > 1:
            raise PlanError(f"data.valid_sets: {error}") from None
        raise PlanError(f"data.valid: {error}") from None
    if corpus is None:
        return plan_pass(*pairs.lengths, shapes)
    src, tgt = (side[corpus.first : corpus.first + corpus.size] for side in pairs.lengths)
    plan = plan_pass(src, tgt, shapes)
    return dataclasses.replace(plan, pairs=(corpus.first + plan.pairs).astype(np.int32))


def _elsewhere(position: Position, inside: str) -> PlanError:
    return PlanError(f"{position} lies outside {inside}, of another corpus or data.batch setting")
