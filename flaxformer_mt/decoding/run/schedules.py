"""When sentences leave a batch and caches grow: one schedule for large models, one for small.

Both yield the numbers of sources (-1: padding) with the hypotheses of as many rows, as these
finish. Whatever the schedule, an output is the same.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import jax
import numpy as np

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.processes import processors
from flaxformer_mt.decoding.run import sizes
from flaxformer_mt.decoding.run.arrays import BatchArrays
from flaxformer_mt.decoding.run.programs import SearchPrograms, concatenated, padded_to, rows_of
from flaxformer_mt.decoding.run.sizes import PlannedBatch, plan_batches, plan_groups, shapes_among
from flaxformer_mt.decoding.search.state import Hypotheses, State
from flaxformer_mt.decoding.text.limits import OutputLimits

STRIDE = 8  # a small model's sentences leave a batch at multiples of this many steps

Finished = tuple[np.ndarray, Hypotheses]
Shape = tuple[int, int]  # rows, source length
Padding = Callable[[int, int], BatchArrays]
"""Arrays of an empty batch of so many rows and source positions."""


class Schedule(Protocol):
    """How sources become batches, and batches outputs."""

    def plan(self, lengths: Sequence[int]) -> Iterable[PlannedBatch]:
        """Batches over sources of these lengths."""
        ...

    def compile_ahead(
        self, programs: SearchPrograms, padding: Padding, batches: Collection[PlannedBatch]
    ) -> None:
        """Before these batches are searched, compiles what is better compiled at once."""
        ...

    def search(
        self, programs: SearchPrograms, arrays: BatchArrays, batch: PlannedBatch
    ) -> Generator[Finished]:
        """The outputs of a batch with these arrays, as its rows finish."""
        ...

    def compile(
        self, programs: SearchPrograms, padding: Padding, lengths: Sequence[int], *, longest: int
    ) -> frozenset[Shape]:
        """Compiles what sources of these lengths may need, or as many with some of up to `longest`
        tokens; returns the batches' shapes."""
        ...


def schedule_for(
    programs: SearchPrograms, config: DecodingConfig, limits: OutputLimits, *, shortlist: bool
) -> Schedule:
    """The schedule for a model of this size, on its devices."""
    if programs.is_small:
        return SmallModelSchedule(config, limits, cores=processors())
    platform = programs.mesh.devices.flat[0].platform
    compiles_fast = platform in sizes.COMPILES_FAST
    return LargeModelSchedule(
        config,
        limits,
        shards=programs.shards,
        shrinks=sizes.CPU_SHRINKS if compiles_fast else sizes.ACCELERATOR_SHRINKS,
        ahead=not compiles_fast and not shortlist,
    )


@dataclasses.dataclass(frozen=True)
class LargeModelSchedule:
    """A batch shrinks: when the cache is full or few sentences are left, finished ones leave and
    the cache grows, so that early steps don't read room that only late ones need."""

    config: DecodingConfig
    limits: OutputLimits
    shards: int  # of a batch's rows, one per device
    shrinks: tuple[int, int]  # as sizes.CPU_SHRINKS
    ahead: bool  # compile all programs of a shape before its first batch

    def plan(self, lengths: Sequence[int]) -> Iterator[PlannedBatch]:
        """As `Schedule.plan`."""
        return plan_batches(lengths, self.config, self.limits.max_length, shards=self.shards)

    def compile_ahead(
        self, programs: SearchPrograms, padding: Padding, batches: Collection[PlannedBatch]
    ) -> None:
        """As `Schedule.compile_ahead`."""
        if self.ahead:
            shapes = {(batch.rows, batch.length) for batch in batches}
            self._call_all(dataclasses.replace(programs, compile_only=True), padding, shapes)

    def search(
        self, programs: SearchPrograms, arrays: BatchArrays, batch: PlannedBatch
    ) -> Generator[Finished]:
        """As `Schedule.search`, all rows at a time."""
        numbers = batch.by_row
        length = self.limits.of(arrays.src.shape[1])
        room = sizes.more_room(0, length)
        state = programs.begin(arrays, length=length, room=room)
        while True:
            per_shard = len(numbers) // self.shards
            few = sizes.shrunk(per_shard, self.shrinks)
            state = programs.advance(state, room, few)
            stopped = np.asarray(state.stopped)
            if stopped.all():
                yield numbers, jax.tree.map(np.asarray, state.finished)
                return

            live = (~stopped).reshape(self.shards, per_shard)
            staying = few if live.sum(axis=1).max() <= few else per_shard
            # Live rows come first, in their order.
            order = np.argsort(~live, axis=1, kind="stable")  # --> [shards, per_shard]
            remaining = order[:, :staying]
            if staying < per_shard:
                leaving = np.where(stopped, numbers, -1)
                yield leaving, jax.tree.map(np.asarray, state.finished)
                flat = (remaining + per_shard * np.arange(self.shards)[:, None]).reshape(-1)
                numbers = np.where(stopped, -1, numbers)[flat]
            if int(state.position) == room:
                room = sizes.more_room(room, length)
            state = programs.reshape(state, remaining, room)

    def compile(
        self, programs: SearchPrograms, padding: Padding, lengths: Sequence[int], *, longest: int
    ) -> frozenset[Shape]:
        """As `Schedule.compile`. Each program is called on padding as well: what the device has no
        memory for fails now."""
        shapes = shapes_among(
            lengths, self.config, self.limits.max_length, shards=self.shards, longest=longest
        )
        if self.ahead:
            self._call_all(dataclasses.replace(programs, compile_only=True), padding, shapes)
        self._call_all(programs, padding, shapes)
        return shapes

    def _call_all(
        self, programs: SearchPrograms, padding: Padding, shapes: Collection[Shape]
    ) -> None:
        """Calls all programs that batches of these shapes may need: to compile them, as many at
        once as there are cores, or to run them, one after another. JAX finds them at their next
        call."""
        known = set()
        pool = ThreadPoolExecutor(processors() if programs.compile_only else 1)
        try:
            tasks = deque(
                (shape, pool.submit(self._first_states, programs, padding, shape))
                for shape in shapes
            )
            while tasks:
                shape, task = tasks.popleft()
                for state, room in task.result():
                    key = shape, state.stopped.size, room
                    if key not in known:
                        known.add(key)
                        following = pool.submit(self._following, programs, shape, state, room)
                        tasks.append((shape, following))
        finally:
            pool.shutdown(cancel_futures=True)

    def _first_states(
        self, programs: SearchPrograms, padding: Padding, shape: Shape
    ) -> list[tuple[State, int]]:
        """The first state of a batch of this shape, with the room of its cache."""
        length = self.limits.of(shape[1])
        room = sizes.more_room(0, length)
        return [(programs.begin(padding(*shape), length=length, room=room), room)]

    def _following(
        self, programs: SearchPrograms, shape: Shape, state: State, room: int
    ) -> list[tuple[State, int]]:
        """The states that a batch may come to from another one."""
        per_shard, length = state.stopped.size // self.shards, self.limits.of(shape[1])
        state = programs.advance(state, room)
        reshaped = []
        for fewer in {per_shard, sizes.shrunk(per_shard, self.shrinks)} - {0}:
            for other_room in {room, sizes.more_room(room, length)}:
                if (fewer, other_room) != (per_shard, room):
                    first_rows = np.tile(np.arange(fewer), (self.shards, 1))
                    smaller = programs.reshape(state, first_rows, other_room)
                    reshaped.append((smaller, other_room))
        return reshaped


class Waiting(NamedTuple):
    """Sentences of a small model between two batches: their numbers, and a state on the host."""

    numbers: np.ndarray
    state: State


@dataclasses.dataclass(frozen=True)
class SmallModelSchedule:
    """A batch keeps its shape, since compiling takes longer than searching: when many of its
    sentences are finished, the others wait for some at the same step. Threads, whose products leave
    cores idle, search side by side."""

    config: DecodingConfig
    limits: OutputLimits
    cores: int  # that this process may use

    def plan(self, lengths: Sequence[int]) -> list[PlannedBatch]:
        """As `Schedule.plan`."""
        return plan_groups(lengths, self.config, self.limits.max_length, cores=self.cores)

    def compile_ahead(
        self, programs: SearchPrograms, padding: Padding, batches: Collection[PlannedBatch]
    ) -> None:
        """As `Schedule.compile_ahead`: nothing, since all have few shapes."""

    def search(
        self, programs: SearchPrograms, arrays: BatchArrays, batch: PlannedBatch
    ) -> Generator[Finished]:
        """As `Schedule.search`. Closing the generator ends all threads."""
        numbers = batch.by_row
        closed = threading.Event()

        def share(first: int) -> list[Finished]:
            of_thread = slice(first, None, batch.threads)
            its_arrays = jax.tree.map(operator.itemgetter(of_thread), arrays)
            finished = self._refilled(programs, its_arrays, numbers[of_thread], batch.rows)
            return list(itertools.takewhile(lambda _: not closed.is_set(), finished))

        with ThreadPoolExecutor(batch.threads) as pool:
            try:
                yield from itertools.chain.from_iterable(pool.map(share, range(batch.threads)))
            finally:
                closed.set()

    def _refilled(
        self, programs: SearchPrograms, arrays: BatchArrays, numbers: np.ndarray, rows: int
    ) -> Generator[Finished]:
        """The outputs of any multiple of `rows` sources, in batches of that size."""
        length = self.limits.of(arrays.src.shape[1])
        rooms = sizes.rooms_of_small(arrays.src.shape[1], length)
        stride = max(STRIDE, length // STRIDE)
        starts = list(range(0, len(numbers), rows))[::-1]
        waiting: dict[int, Waiting] = {}  # by the steps taken
        while starts or waiting:
            full = [steps for steps, group in waiting.items() if len(group.numbers) >= rows]
            if starts and not full:
                first = starts.pop()
                batch = slice(first, first + rows)
                batch_numbers, room = numbers[batch], rooms[0]
                its_arrays = jax.tree.map(operator.itemgetter(batch), arrays)
                state = programs.begin(its_arrays, length=length, room=room)
            else:
                steps = full[0] if full else min(waiting)
                room = rooms[0] if steps < rooms[0] else length
                batch_numbers, state = _next_batch(waiting, steps, rows, room)

            leave_at = rows * 3 // 4 if starts or waiting else 0
            state = programs.advance(state, room, leave_at, stride)
            host = jax.tree.map(np.asarray, state)
            live = ~host.stopped
            yield np.where(live, -1, batch_numbers), host.finished
            if live.any():
                _wait(waiting, Waiting(batch_numbers[live], rows_of(host, live)))

    def compile(
        self, programs: SearchPrograms, padding: Padding, lengths: Sequence[int], *, longest: int
    ) -> frozenset[Shape]:
        """As `Schedule.compile`."""
        shapes = frozenset((batch.rows, batch.length) for batch in self.plan(lengths))
        for rows, src_length in shapes:
            length = self.limits.of(src_length)
            rooms = sizes.rooms_of_small(src_length, length)
            begun = programs.begin(padding(rows, src_length), length=length, room=rooms[0])
            first_row = rows_of(jax.tree.map(np.asarray, begun), np.arange(1))
            for room in rooms:
                programs.advance(padded_to(first_row, rows, room=room), room)
        return shapes


def _next_batch(
    waiting: dict[int, Waiting], steps: int, rows: int, room: int
) -> tuple[np.ndarray, State]:
    """Takes up to `rows` of the sentences that have taken so many steps, padded to that many."""
    numbers, state = waiting.pop(steps)
    if len(numbers) > rows:
        left_over = np.arange(rows, len(numbers))
        waiting[steps] = Waiting(numbers[left_over], rows_of(state, left_over))
    batch_numbers = np.full(rows, -1)
    batch_numbers[: len(numbers)] = numbers[:rows]
    return batch_numbers, padded_to(state, rows, room=room)


def _wait(waiting: dict[int, Waiting], group: Waiting) -> None:
    """Adds sentences to those that have taken as many steps."""
    steps = int(group.state.position)
    known = waiting.get(steps)
    waiting[steps] = group if known is None else concatenated(known, group)
