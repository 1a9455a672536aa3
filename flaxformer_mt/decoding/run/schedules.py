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
    even_shapes,
    plan_batches,
    plan_even_batches,
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

            staying = _staying(stopped, self.shards, few)
            if staying.size < stopped.size:
                yield np.where(stopped, numbers, -1), jax.tree.map(np.asarray, state.finished)
                numbers = _numbers_of(staying, np.where(stopped, -1, numbers))
            if int(state.position) == room:
                room = sizes.more_room(room, length)
            state = programs.reshape(state, staying, room)

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


def _staying(stopped: np.ndarray, shards: int, few: int) -> np.ndarray:
    """The rows of each shard that stay in a batch, [shards, staying], live ones first, in order:
    `few` if no shard has more live ones, else all."""
    live = (~stopped).reshape(shards, -1)
    count = few if live.sum(axis=1).max() <= few else live.shape[1]
    return np.argsort(~live, axis=1, kind="stable")[:, :count]


def _numbers_of(staying: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Of `numbers`, one for each row of all shards, those of the rows that stay."""
    by_shard = numbers.reshape(len(staying), -1)
    return np.take_along_axis(by_shard, staying, axis=1).reshape(-1)


class Stage(NamedTuple):
    """A program that a batch on an accelerator runs, with the rows and the cache that it has after
    that."""

    program: Literal["begin", "advance", "reshape"]
    rows: int
    room: int  # positions of the cache
    leave_at: int = 0  # live rows of a shard at which it ends early


@dataclasses.dataclass(frozen=True)
class Course:
    """What a batch of one shape goes through on an accelerator.

    It is searched with a cache of `room` until no rows are left, or `few`. Those that are left move
    to a cache for outputs of `length`, the longest, where all are searched to their ends.
    """

    rows: int
    few: int  # 0: it isn't left early
    room: int
    length: int
    shards: int  # of the rows

    @property
    def beginning(self) -> tuple[Stage, Stage]:
        leave_at = self.few // self.shards
        return (
            Stage("begin", self.rows, self.room),
            Stage("advance", self.rows, self.room, leave_at),
        )

    def end(self, rows: int) -> tuple[Stage, Stage]:
        """With so many rows left."""
        return Stage("reshape", rows, self.length), Stage("advance", rows, self.length)

    @property
    def ends(self) -> list[tuple[Stage, Stage]]:
        """All that there may be, the likeliest first."""
        counts = (self.few, self.rows) if self.few else (self.rows,)
        return [] if self.room == self.length else [*map(self.end, counts)]

    @property
    def stages(self) -> list[Stage]:
        return [*self.beginning, *itertools.chain.from_iterable(self.ends)]

    def run(
        self,
        stage: Stage,
        programs: SearchPrograms,
        before: Any,
        staying: np.ndarray | None = None,
    ) -> State:
        """The state after a stage. `before` are a batch's arrays, or the state before it; `staying`
        are the rows of each shard that `reshape` keeps (default: the first ones)."""
        if stage.program == "begin":
            return programs.begin(before, length=self.length, room=stage.room)
        if stage.program == "advance":
            return programs.advance(before, stage.room, stage.leave_at)
        if staying is None:
            staying = np.tile(np.arange(stage.rows // self.shards), (self.shards, 1))
        return programs.reshape(before, staying, stage.room)


Form = tuple[Any, ...]  # of a batch's arrays
Key = tuple[Form, Stage]
Tasks = dict[Key, Callable[[], State]]


@dataclasses.dataclass(frozen=True)
class AcceleratorSchedule:
    """Compiles few programs, since each takes seconds: a batch moves at most once, from many rows
    with a small cache to few, or as many, with the largest."""

    config: DecodingConfig
    limits: OutputLimits
    shards: int  # of a batch's rows, one per device
    compiler: BackgroundCompiler[Key] = dataclasses.field(default_factory=BackgroundCompiler)

    def plan(self, lengths: Sequence[int]) -> Iterator[PlannedBatch]:
        """As `Schedule.plan`."""
        return plan_even_batches(lengths, self.config, self.limits.max_length, shards=self.shards)

    def compiling(
        self, programs: SearchPrograms, padding: Padding, batches: Collection[PlannedBatch]
    ) -> contextlib.AbstractContextManager[None]:
        """As `Schedule.compiling`, in the order in which batches need it. What a shape's only batch
        moves to is compiled if it has to move."""
        tasks: Tasks = {}
        for shape, count in Counter((batch.rows, batch.length) for batch in batches).items():
            of_shape = self.tasks(programs, padding, shape)
            needed = len(of_shape) if count > 1 else len(self.course(shape).beginning)
            tasks |= dict(itertools.islice(of_shape.items(), needed))
        return self.compiler.beside(tasks)

    def search(
        self, programs: SearchPrograms, arrays: BatchArrays, batch: PlannedBatch
    ) -> Generator[Finished]:
        """As `Schedule.search`, all rows at a time."""
        form, numbers = _form_of(arrays), batch.by_row
        course = self.course((batch.rows, batch.length))

        begin, advance = course.beginning
        self.compiler.wait_for((form, begin))
        state = course.run(begin, programs, arrays)
        self.compiler.wait_for((form, advance))
        state = course.run(advance, programs, state)

        stopped = np.asarray(state.stopped)
        if not stopped.all():
            staying = _staying(stopped, self.shards, advance.leave_at)
            if staying.size < stopped.size:
                yield np.where(stopped, numbers, -1), jax.tree.map(np.asarray, state.finished)
                numbers = _numbers_of(staying, np.where(stopped, -1, numbers))
            for stage in course.end(staying.size):
                self.compiler.wait_for((form, stage))
                state = course.run(stage, programs, state, staying)
        yield numbers, jax.tree.map(np.asarray, state.finished)

    def compile(
        self, programs: SearchPrograms, padding: Padding, lengths: Sequence[int], *, longest: int
    ) -> frozenset[Shape]:
        """As `Schedule.compile`. Each program is called on padding as well: what the device has no
        memory for fails now."""
        possible = range(min(lengths), max(longest, *lengths) + 1) if lengths else ()
        shapes = even_shapes(
            len(lengths), possible, self.config, self.limits.max_length, shards=self.shards
        )
        tasks: Tasks = {}
        for shape in shapes:
            tasks |= self.tasks(programs, padding, shape)
        with self.compiler.beside(tasks):
            for key in tasks:
                self.compiler.wait_for(key)

        for shape in shapes:
            course = self.course(shape)
            begin, advance = course.beginning
            state = course.run(advance, programs, course.run(begin, programs, padding(*shape)))
            jax.block_until_ready(state)
            for reshape, advance in course.ends:
                moved = course.run(reshape, programs, state)
                jax.block_until_ready(course.run(advance, programs, moved))
        return shapes

    def tasks(
        self,
        programs: SearchPrograms,
        padding: Padding,
        shape: Shape,
        compiled_by: Callable[[Lowered], Compiled] = Lowered.compile,
    ) -> Tasks:
        """What compiles each program of a shape, in the order in which they're likely needed."""
        course, forms = self.course(shape), dataclasses.replace(programs, compiled_by=compiled_by)
        rows, src_length = shape

        def state_before(stage: Stage) -> State:
            """In form: an `advance` has the rows and the cache already."""
            moves = stage.program == "reshape"
            arrays = padding(rows if moves else stage.rows, src_length)
            room = course.room if moves else stage.room
            return forms.form_of_begin(arrays, length=course.length, room=room)

        def compile_stage(stage: Stage) -> State:
            is_first = stage.program == "begin"
            return course.run(stage, forms, padding(*shape) if is_first else state_before(stage))

        form = _form_of(padding(*shape))
        return {(form, stage): functools.partial(compile_stage, stage) for stage in course.stages}

    def course(self, shape: Shape) -> Course:
        """Of a batch of this shape."""
        rows, src_length = shape
        length = self.limits.of(src_length)
        room = sizes.first_room(src_length, length)
        few = sizes.ACCELERATOR_FEW * self.shards
        moves_early = room < length and rows >= 4 * few
        return Course(rows, few if moves_early else 0, room, length, self.shards)


def _form_of(arrays: BatchArrays) -> Form:
    """What programs are compiled for: arrays with phrases aren't those without."""
    leaves, structure = jax.tree.flatten(arrays)
    return structure, *((leaf.shape, leaf.dtype) for leaf in leaves)


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
    compiler: BackgroundCompiler[tuple[Shape, int]] = dataclasses.field(
        default_factory=BackgroundCompiler
    )

    def plan(self, lengths: Sequence[int]) -> list[PlannedBatch]:
        """As `Schedule.plan`."""
        return plan_groups(lengths, self.config, self.limits.max_length, cores=self.cores)

    def compiling(
        self, programs: SearchPrograms, padding: Padding, batches: Collection[PlannedBatch]
    ) -> contextlib.AbstractContextManager[None]:
        """As `Schedule.compiling`: first the programs that begin a search, then those that continue
        it from their results. Nothing for a single batch of a few sentences, which needs its
        programs one after the other."""
        if len(batches) == 1 and all(len(batch.numbers) <= batch.rows for batch in batches):
            return contextlib.nullcontext()
        begins: dict[tuple[Shape, int], Callable[[], object]] = {}
        others: dict[tuple[Shape, int], Callable[[], object]] = {}
        for rows, src_length in dict.fromkeys((batch.rows, batch.length) for batch in batches):
            length = self.limits.of(src_length)
            rooms = sizes.rooms_of_small(src_length, length)
            begin = functools.partial(
                programs.get_begin, padding(rows, src_length), length=length, room=rooms[0]
            )
            begins[(rows, src_length), 0] = begin
            for room in rooms:
                others[(rows, src_length), room] = functools.partial(
                    _get_advance, programs, begin, room
                )
        return self.compiler.beside(begins | others)

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


def _get_advance(programs: SearchPrograms, begin: Callable[[], State], room: int) -> None:
    programs.get_advance(begin(), room)


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
