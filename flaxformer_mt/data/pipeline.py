"""The stream of training batches: planned, assembled ahead of the step, resumable.

Only this file of the room imports JAX and Grain. Every worker plans every window and assembles its
share of the batches. So the stream doesn't depend on their number, and its whole state is the
position of the next batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import signal
import time
import weakref
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import grain
import jax
import numpy as np
from absl import flags
from grain.experimental import ThreadPrefetchIterDataset
from jaxtyping import Int32

from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.batch import WHOLE, Batch, Share, assemble
from flaxformer_mt.data.order import Position as Position, StoredCorpus
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.data.planner import Planner, planned_batches, planned_pass
from flaxformer_mt.data.processes import end_with_parent, signals_held_back
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.errors import FlaxformerError

_FIELDS = [field.name for field in dataclasses.fields(Batch)]
jax.tree_util.register_dataclass(Batch, data_fields=_FIELDS, meta_fields=[])

_AHEAD = 8  # batches that are ready: enough to hide an uneven step
_START = Position()


class WorkerError(FlaxformerError):
    """A process that assembles batches has died."""


class Batches(Iterator[tuple[Batch, Position]], contextlib.AbstractContextManager["Batches"]):
    """Endless (batch, position of the next one), from the batch at `position` on.

    The stream is a pure function of `planner`'s arguments; one that starts at a position continues
    an earlier one. Positions in `skip` are left out. Batches have only the rows of `share`.

    A thread or `workers` processes assemble batches ahead. `next` raises their errors: PlanError
    for a position of another store or batch size, WorkerError if a process died. `close`, the end
    of a `with` block or dropping the last reference ends them.
    """

    def __init__(
        self,
        planner: Planner,
        position: Position = _START,
        *,
        skip: Collection[Position] = (),
        share: Share = WHOLE,
        workers: int = 0,
    ) -> None:
        self.shapes = planner.shapes  # the shapes that batches have
        self.windows = planner.order.windows  # windows of an epoch
        self.delivered = position  # the place of the batch that `next` gave last
        self.epochs_done = float(position.epoch)  # after the last batch, with fraction
        self.seconds_waited = 0.0  # seconds that `next` has waited for data in all
        self._next_delivery: _Delivery | None = None  # fetched, but not returned by `next` yet
        self._share = share
        dataset = _prefetched(_Stream(planner, position, frozenset(skip), share), workers)
        signals = (signal.SIGINT, signal.SIGTERM)
        with signals_held_back(*signals) if workers else contextlib.nullcontext():
            self._iterator = iter(dataset)
            # They hold no reference to this object, so that dropping it ends them.
            self._end = weakref.finalize(self, self._iterator.close)
            if workers:
                # Grain creates what it starts when asked for a batch or for the state.
                self._iterator.get_state()
            self._iterator.start_prefetch()

    def __next__(self) -> tuple[Batch, Position]:
        delivery = self._next_delivery or self._fetched()
        self._next_delivery = None
        position = self.delivered = delivery.position
        windows_done = position.window + (position.index + 1) / delivery.batches
        self.epochs_done = position.epoch + windows_done / self.windows
        return delivery.batch, delivery.after

    def shape_ahead(self) -> Shape:
        """The next batch's shape, of all shares. Waits for it and raises as `next`."""
        self._next_delivery = self._next_delivery or self._fetched()
        shape = self._next_delivery.batch.shape  # of this share
        return dataclasses.replace(shape, rows=self._share.of_whole(shape.rows))

    def _fetched(self) -> _Delivery:
        begin = time.perf_counter()
        try:
            delivery = next(self._iterator)
        except BaseException as error:
            self.close()
            if isinstance(error, RuntimeError) and "terminated unexpectedly" in str(error):
                raise WorkerError(
                    f"a data worker died: {error}; "
                    "it may have run out of memory: lower data.workers (0: a thread)"
                ) from error
            raise
        self.seconds_waited += time.perf_counter() - begin
        return delivery if isinstance(delivery, _Delivery) else _from_flat(delivery)

    def close(self) -> None:
        """End the thread or the processes; calling it again does nothing."""
        self._end()

    def __exit__(self, *_: Any) -> None:
        self.close()


def one_pass(
    pairs: TokenPairs,
    batch_config: BatchConfig,
    *,
    share: Share = WHOLE,
    corpus: StoredCorpus | None = None,
) -> Iterator[Batch]:
    """Every pair once, or every pair of one `corpus`, in order of length, in few shapes, for
    validation. Raises PlanError."""
    plan = planned_pass(pairs, batch_config, corpus)
    for index in range(len(plan)):
        shape, rows = plan[index]
        yield assemble(pairs, rows.pairs, shape, rows.counts, share)


def exchanged_pass(
    pairs: TokenPairs,
    batch_config: BatchConfig,
    *,
    most: int,
    share: Share = WHOLE,
    corpus: StoredCorpus | None = None,
) -> Iterator[tuple[int, Batch]]:
    """At most so many batches of `one_pass`, spread over the lengths, and their places in it.

    Each target gets the source of the pair before it, of similar length. Raises PlanError.
    """
    plan = planned_pass(pairs, batch_config, corpus)
    of_several = [index for index in range(len(plan)) if len(plan[index][1].pairs) > 1]
    spread = np.linspace(0, len(of_several) - 1, min(most, len(of_several))).round().astype(int)
    for number in spread.tolist():
        index = of_several[number]
        shape, rows = plan[index]
        sources = np.roll(rows.pairs, 1)
        yield index, assemble(pairs, rows.pairs, shape, rows.counts, share, sources)


class _Delivery(NamedTuple):
    """A batch, its position and that of the next."""

    batch: Batch
    position: Position
    after: Position
    batches: int  # batches of its window


class _Stream(grain.IterDataset):
    """The stream as Grain's data set of deliveries, batch `n` of every `step`."""

    def __init__(
        self, planner: Planner, position: Position, skip: frozenset[Position], share: Share
    ) -> None:
        super().__init__()
        self.planner = planner
        self.position = position
        self.skip = skip
        self.share = share
        self.first, self.step = 0, 1

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Grain gives each worker every `step`-th batch."""
        del sequential_slice
        self.first, self.step = sl.start or 0, sl.step or 1

    def __iter__(self) -> _StreamIterator:
        return _StreamIterator(self)


class _StreamIterator(grain.DatasetIterator):
    def __init__(self, dataset: _Stream) -> None:
        super().__init__()
        self._dataset = dataset
        self._after = dataset.position
        self._planned = planned_batches(dataset.planner, dataset.position, dataset.skip)
        self._mine = itertools.islice(self._planned, dataset.first, None, dataset.step)

    def __next__(self) -> _Delivery:
        planned = next(self._mine)
        self._after = planned.after
        batch = planned.batch(self._dataset.share)
        return _Delivery(batch, planned.position, planned.after, planned.batches)

    def get_state(self) -> dict[str, int]:
        """For Grain; a run keeps the position that comes with a batch."""
        return dataclasses.asdict(self._after)

    def set_state(self, state: dict[str, int]) -> None:
        raise NotImplementedError("start a new stream at the position instead")

    def close(self) -> None:
        super().close()
        self._planned.close()


def _prefetched(stream: _Stream, workers: int) -> Any:
    """The stream with batches assembled ahead, by `workers` processes or a thread."""
    if not workers:
        return ThreadPrefetchIterDataset(stream, prefetch_buffer_size=_AHEAD)
    # Grain passes absl's flags to its workers, if they are parsed.
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    options = grain.MultiprocessingOptions(
        num_workers=workers, per_worker_buffer_size=max(2, _AHEAD // workers)
    )
    return stream.map(_flat).mp_prefetch(options, worker_init_fn=end_with_parent)


def _flat(delivery: _Delivery) -> Int32[np.ndarray, " numbers"]:
    """One array of shape, positions and fields: each array costs a block of shared memory."""
    batch, position, after, batches = delivery
    shape = batch.src.shape + batch.tgt_in.shape
    head = [*shape, *dataclasses.astuple(position), *dataclasses.astuple(after), batches]
    # Weights have as many bits as the integers.
    arrays = (array.view(np.int32).ravel() for array in batch.arrays.values())
    numbers = [np.array(head), *arrays]
    return np.concatenate(numbers, dtype=np.int32, casting="same_kind")


def _from_flat(flat: Int32[np.ndarray, " numbers"]) -> _Delivery:
    numbers = np.array(flat)
    rows, src_length, _, tgt_length, *positions, batches = numbers[:11].tolist()
    lengths = [src_length if name.startswith("src") else tgt_length for name in _FIELDS]
    arrays = np.split(numbers[11:], rows * np.cumsum(lengths)[:-1])
    fields: dict[str, Any] = {
        name: array.reshape(rows, -1) for name, array in zip(_FIELDS, arrays, strict=True)
    }
    weights = fields["tgt_weights"]
    fields["tgt_weights"] = weights.view(np.float32) if weights.size else None
    batch = Batch(**fields)
    return _Delivery(batch, Position(*positions[:3]), Position(*positions[3:]), batches)
