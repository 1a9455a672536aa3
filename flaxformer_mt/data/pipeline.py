"""The stream of training batches: planned, put together ahead of the step, resumable.

The one door of this room to JAX: a `Batch` becomes a pytree here.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
import weakref
from collections.abc import Collection, Iterator
from types import TracebackType

import jax

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.batch import Batch, assemble
from flaxformer_mt.data.plan import (
    EpochPlan,
    PlanError,
    Shape,
    plan_epoch,
    plan_pass,
    shapes_for,
)
from flaxformer_mt.data.position import Position as Position
from flaxformer_mt.data.store import TokenPairs

jax.tree_util.register_dataclass(
    Batch, data_fields=[field.name for field in dataclasses.fields(Batch)], meta_fields=[]
)

# Batches that stand ready: enough to hide the planning of an epoch, small beside the model.
_AHEAD = 8
_START = Position(0, 0)
_POLL_SECONDS = 0.1
_VALIDATION_SHAPES = 4


class Batches(Iterator[tuple[Batch, Position]]):
    """Endless (batch, position of the one after it), from the batch at `position` on.

    The stream is a pure function of the pairs' lengths, `batch_config` and `seed`; a stream begun
    at a position gives the batches that one begun earlier gives from there. Batches whose
    positions are in `skip`, those recorded when an update went wrong, are left out, and no
    position given names one of them.

    A thread puts batches together ahead of need. What it raises is raised by `next`; `close`, the
    end of a `with` block or dropping the last reference ends it.

    Raises:
      PlanError: no plan is possible, or `position` lies beyond its epoch: the position of
        another store or batch size.
    """

    def __init__(
        self,
        pairs: TokenPairs,
        batch_config: BatchConfig,
        seed: int,
        position: Position = _START,
        *,
        skip: Collection[Position] = (),
    ) -> None:
        self.shapes: tuple[Shape, ...] = shapes_for(
            pairs.src_lengths, pairs.tgt_lengths, batch_config
        )
        plan = _plan(pairs, self.shapes, seed, max(position.epoch, 0))
        if position.epoch < 0 or not 0 <= position.index <= len(plan):
            raise PlanError(
                f"{position} lies outside an epoch of {len(plan):,} batches: it belongs to another "
                f"corpus or data.batch setting"
            )
        self.batches_per_epoch: int = len(plan)
        """Batches of every epoch, `skip` aside."""
        self.padding: float = plan.padding(pairs.src_lengths, pairs.tgt_lengths)
        """The share of an epoch's positions, both sides, that hold no token."""
        self.seconds_waited: float = 0.0
        """Seconds that `next` has waited for data in all."""
        left_out = frozenset(skip)
        self.position: Position = _deliverable(position, len(plan), left_out)
        """The batch that `next` gives."""
        self._error: BaseException | None = None
        self._ready: queue.Queue[tuple[Batch, Position] | BaseException] = queue.Queue(_AHEAD)
        self._stop = threading.Event()
        # The thread holds no reference to this object, so that dropping it ends the thread.
        self._thread = threading.Thread(
            target=_fill,
            args=(self._ready, self._stop, pairs, self.shapes, seed, self.position, left_out),
            name="batches",
            daemon=True,
        )
        self._thread.start()
        weakref.finalize(self, self._stop.set)

    def __next__(self) -> tuple[Batch, Position]:
        if self._error is not None:
            raise self._error
        if self._stop.is_set():
            raise RuntimeError("the stream of batches is closed")
        begin = time.perf_counter()
        item = self._ready.get()
        self.seconds_waited += time.perf_counter() - begin
        if isinstance(item, BaseException):
            self._error = item
            self.close()
            raise item
        self.position = item[1]
        return item

    def epochs(self, position: Position) -> float:
        """Epochs done before `position`, with fraction."""
        return position.epoch + position.index / self.batches_per_epoch

    def close(self) -> None:
        """End the thread; calling it again does nothing."""
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> Batches:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def one_pass(
    pairs: TokenPairs, batch_config: BatchConfig, *, max_shapes: int = _VALIDATION_SHAPES
) -> Iterator[Batch]:
    """Every pair once, in order of length, in few shapes: for validation, always the same.

    Raises:
      PlanError: there are no pairs, or the budget is too small for the longest.
    """
    few = dataclasses.replace(batch_config, max_shapes=min(max_shapes, batch_config.max_shapes))
    shapes = shapes_for(pairs.src_lengths, pairs.tgt_lengths, few)
    plan = plan_pass(pairs.src_lengths, pairs.tgt_lengths, shapes)
    for index in range(len(plan)):
        shape, indices = plan[index]
        yield assemble(pairs, indices, shape)


def _plan(pairs: TokenPairs, shapes: tuple[Shape, ...], seed: int, epoch: int) -> EpochPlan:
    return plan_epoch(pairs.src_lengths, pairs.tgt_lengths, shapes, seed, epoch)


def _deliverable(position: Position, batches: int, skip: frozenset[Position]) -> Position:
    """The first batch from `position` on that is not left out."""
    while position.index == batches or position in skip:
        if position.index == batches:
            position = Position(position.epoch + 1, 0)
        else:
            position = Position(position.epoch, position.index + 1)
    return position


def _fill(
    ready: queue.Queue[tuple[Batch, Position] | BaseException],
    stop: threading.Event,
    pairs: TokenPairs,
    shapes: tuple[Shape, ...],
    seed: int,
    position: Position,
    skip: frozenset[Position],
) -> None:
    """The thread: put batches into `ready` until `stop`; an error is the last item."""
    item: tuple[Batch, Position] | BaseException
    planned, plan = -1, None
    while not stop.is_set():
        try:
            if plan is None or planned != position.epoch:
                planned, plan = position.epoch, _plan(pairs, shapes, seed, position.epoch)
            shape, indices = plan[position.index]
            after = Position(position.epoch, position.index + 1)
            position = _deliverable(after, len(plan), skip)
            item = assemble(pairs, indices, shape), position
        except BaseException as error:
            item = error
        while not stop.is_set():
            try:
                ready.put(item, timeout=_POLL_SECONDS)
                break
            except queue.Full:
                continue
        if isinstance(item, BaseException):
            return
