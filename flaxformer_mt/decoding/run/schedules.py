"""When sentences leave a batch and caches grow: a schedule for large models on a CPU, one for small
ones there, and one for accelerators.

All yield the numbers of sources (-1: padding) with the hypotheses of as many rows, as these finish.
Whatever the schedule, an output is the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import operator
import threading
from collections import Counter, deque
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, Protocol

import jax
import numpy as np
from jax.stages import Compiled, Lowered

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.processes import processors
from flaxformer_mt.decoding.run import sizes
from flaxformer_mt.decoding.run.arrays import BatchArrays
from flaxformer_mt.decoding.run.background import BackgroundCompiler
from flaxformer_mt.decoding.run.programs import SearchPrograms, concatenated, padded_to, rows_of
from flaxformer_mt.decoding.run.sizes import (
    PlannedBatch,
    alike_shapes_among,
    plan_alike,
    plan_batches,
    plan_groups,
    shapes_among,
)
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

    def compiling(
        self, programs: SearchPrograms, padding: Padding, batches: Collection[PlannedBatch]
    ) -> contextlib.AbstractContextManager[None]:
        """While these batches are searched, compiles what later ones need beside earlier ones."""
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
    programs: SearchPrograms, config: DecodingConfig, limits: OutputLimits
) -> Schedule:
    """The schedule for a model of this size, on its devices."""
    if programs.is_small:
        return SmallModelSchedule(config, limits, cores=processors())
    if programs.mesh.devices.flat[0].platform in sizes.COMPILES_FAST:
        return LargeModelSchedule(config, limits, shards=programs.shards)
    return AcceleratorSchedule(config, limits, shards=programs.shards)


@dataclasses.dataclass(frozen=True)
class LargeModelSchedule:
    """A batch shrinks: when the cache is full or few sentences are left, finished ones leave and
    the cache grows, so that early steps don't read room that only late ones need."""

    config: DecodingConfig
    limits: OutputLimits
    shards: int  # of a batch's rows, one per device

    def plan(self, lengths: Sequence[int]) -> Iterator[PlannedBatch]:
        """As `Schedule.plan`."""
        return plan_batches(lengths, self.config, self.limits.max_length, shards=self.shards)

    def compiling(
        self, programs: SearchPrograms, padding: Padding, batches: Collection[PlannedBatch]
    ) -> contextlib.AbstractContextManager[None]:
        """As `Schedule.compiling`: nothing, since a CPU's programs compile fast."""
        return contextlib.nullcontext()

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
            few = per_shard // sizes.SHRINKS
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
        """As `Schedule.compile`. Each program is called on padding: what there is no memory for
        fails now."""
        shapes = shapes_among(
            lengths, self.config, self.limits.max_length, shards=self.shards, longest=longest
        )
        for shape in shapes:
            length = self.limits.of(shape[1])
            room = sizes.more_room(0, length)
            known = set()
            states = deque([(programs.begin(padding(*shape), length=length, room=room), room)])
            while states:
                state, room = states.popleft()
                if (state.stopped.size, room) not in known:
                    known.add((state.stopped.size, room))
                    states += self._following(programs, state, room, length)
        return shapes

    def _following(
        self, programs: SearchPrograms, state: State, room: int, length: int
    ) -> Iterator[tuple[State, int]]:
        """The states that a batch may come to from another one, with the room of their caches."""
        per_shard = state.stopped.size // self.shards
        state = programs.advance(state, room)
        for fewer in {per_shard, per_shard // sizes.SHRINKS} - {0}:
            for other_room in {room, sizes.more_room(room, length)}:
                if (fewer, other_room) != (per_shard, room):
                    first_rows = np.tile(np.arange(fewer), (self.shards, 1))
                    yield programs.reshape(state, first_rows, other_room), other_room


class Stage(NamedTuple):
    """A program that a batch on an accelerator runs, with a cache of this room after it."""

    program: Literal["begin", "advance", "grow"]
    room: int


Key = tuple[Shape, Stage]
Tasks = dict[Key, Callable[[], State]]


@dataclasses.dataclass(frozen=True)
class AcceleratorSchedule:
    """A batch keeps its rows to the end, since a step of few takes hardly less time than one of
    many, while every program takes seconds to compile; its cache grows once at most."""

    config: DecodingConfig
    limits: OutputLimits
    shards: int  # of a batch's rows, one per device
    compiler: BackgroundCompiler[Key] = dataclasses.field(default_factory=BackgroundCompiler)

    def plan(self, lengths: Sequence[int]) -> Iterator[PlannedBatch]:
        """As `Schedule.plan`."""
        return plan_alike(lengths, self.config, self.limits.max_length, shards=self.shards)

    def compiling(
        self, programs: SearchPrograms, padding: Padding, batches: Collection[PlannedBatch]
    ) -> contextlib.AbstractContextManager[None]:
        """As `Schedule.compiling`, in the order in which batches need it. What a shape's only batch
        may do without, a larger cache, is compiled when it is needed."""
        tasks: Tasks = {}
        for shape, count in Counter((batch.rows, batch.length) for batch in batches).items():
            of_shape = self.tasks(programs, padding, shape)
            tasks |= dict(itertools.islice(of_shape.items(), None if count > 1 else 2))
        return self.compiler.beside(tasks)

    def search(
        self, programs: SearchPrograms, arrays: BatchArrays, batch: PlannedBatch
    ) -> Generator[Finished]:
        """As `Schedule.search`, all rows at once."""
        shape = batch.rows, batch.length
        state: Any = arrays
        for stage in self._stages(batch.length):
            if stage.program == "grow" and np.asarray(state.stopped).all():
                break
            self.compiler.wait_for((shape, stage))
            state = self._run(stage, programs, state, shape)
        yield batch.by_row, jax.tree.map(np.asarray, state.finished)

    def compile(
        self, programs: SearchPrograms, padding: Padding, lengths: Sequence[int], *, longest: int
    ) -> frozenset[Shape]:
        """As `Schedule.compile`. Each program is called on padding as well: what the device has no
        memory for fails now."""
        shapes = alike_shapes_among(
            lengths, self.config, self.limits.max_length, shards=self.shards, longest=longest
        )
        tasks: Tasks = {}
        for shape in shapes:
            tasks |= self.tasks(programs, padding, shape)
        with self.compiler.beside(tasks):
            for key in tasks:
                self.compiler.wait_for(key)

        for shape in shapes:
            state: Any = padding(*shape)
            for stage in self._stages(shape[1]):
                state = self._run(stage, programs, state, shape)
            jax.block_until_ready(state)
        return shapes

    def tasks(
        self,
        programs: SearchPrograms,
        padding: Padding,
        shape: Shape,
        compiled_by: Callable[[Lowered], Compiled] = Lowered.compile,
    ) -> Tasks:
        """What compiles each program of a shape, in the order in which a batch needs them."""
        compiling = dataclasses.replace(programs, compiled_by=compiled_by)
        length, arrays = self.limits.of(shape[1]), padding(*shape)

        def compile_stage(stage: Stage, room_before: int) -> State:
            before: Any = arrays
            if stage.program != "begin":
                before = compiling.form_of_begin(arrays, length=length, room=room_before)
            return self._run(stage, compiling, before, shape)

        tasks: Tasks = {}
        room_before = 0
        for stage in self._stages(shape[1]):
            tasks[shape, stage] = functools.partial(compile_stage, stage, room_before)
            room_before = stage.room
        return tasks

    def _stages(self, src_length: int) -> Iterator[Stage]:
        """What a batch goes through until all its rows are finished."""
        first_room, *later_rooms = sizes.rooms_of_alike(src_length, self.limits.of(src_length))
        yield from (Stage("begin", first_room), Stage("advance", first_room))
        for room in later_rooms:
            yield from (Stage("grow", room), Stage("advance", room))

    def _run(
        self, stage: Stage, programs: SearchPrograms, before: BatchArrays | State, shape: Shape
    ) -> State:
        rows, src_length = shape
        if isinstance(before, BatchArrays):
            return programs.begin(before, length=self.limits.of(src_length), room=stage.room)
        if stage.program == "advance":
            return programs.advance(before, stage.room)
        every_row = np.tile(np.arange(rows // self.shards), (self.shards, 1))
        return programs.reshape(before, every_row, stage.room)


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

    def compiling(
        self, programs: SearchPrograms, padding: Padding, batches: Collection[PlannedBatch]
    ) -> contextlib.AbstractContextManager[None]:
        """As `Schedule.compiling`: nothing, since all have few shapes."""
        return contextlib.nullcontext()

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
