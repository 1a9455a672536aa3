"""Token ids to token ids in batches of few shapes, shared by translation and validation."""

import contextlib
import copy
import dataclasses
import itertools
import operator
import threading
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.processes import processors
from flaxformer_mt.data.shortlist import Shortlist, distinct
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding import batch_search
from flaxformer_mt.decoding.batch_search import BatchArrays, Models, Params, Source
from flaxformer_mt.decoding.batch_shapes import (
    PlannedBatch,
    one_of_few,
    plan_batches,
    plan_groups,
    power_of_two_at_least,
    shapes_among,
)
from flaxformer_mt.decoding.constraints import Phrases, arranged, in_larger_arrays
from flaxformer_mt.decoding.forbidden import TooManyForbidden, entry_type, forbids, table_of
from flaxformer_mt.decoding.rules import Brackets
from flaxformer_mt.decoding.sampling import Sampling, seed_words
from flaxformer_mt.decoding.search import Hypotheses, Sentences, State
from flaxformer_mt.decoding.segments import DecodingError, LineError, output_limit
from flaxformer_mt.decoding.terminology import check_room, check_rules
from flaxformer_mt.decoding.translation import Decoded, TextOf, decoded_of
from flaxformer_mt.model.embedding import of_types
from flaxformer_mt.parallel.mesh import local_mesh, on_mesh, place_batch, whole_on

LEAST_TYPES = 1024  # target types of the smallest search with a shortlist
LAZY = ("cpu",)  # others take many seconds to compile each of some dozens of programs: all at once
STRIDE = 8  # a small model's sentences leave a batch at multiples of this many steps


@dataclasses.dataclass(frozen=True)
class ConstraintSizes:
    """Sizes of a batch's arrays of required and forbidden phrases, which are compiled in."""

    phrases: int  # of a sentence
    tokens: int  # of a phrase
    states: int  # of the table of forbidden phrases


class Decoder:
    """Searches with fixed models and settings. Raises ValueError for contradictory ones.

    `params` holds the tree under "params" of each of `models`; several are an ensemble, whose
    probability is their mean. A batch's sentences are split over the data axes of `mesh` (default:
    this process's devices). With `sampling`, the beam holds that many draws. With a `shortlist`,
    outputs use only its types for the batch's sources, and probabilities are relative to these.
    With `trees`, outputs are trees over these types, without a shortlist. With `text_of`, which
    gives the text of tokens, no two outputs in an n-best list have the same text: if the beam finds
    fewer texts than `n_best`, the list is shorter.

    A batch with required or forbidden phrases is padded to the first of `constraint_sizes`, which
    go from small to large, that has room for them, and its program takes both kinds: so a server
    can compile all its programs beforehand. What fits in none is an error. Without
    `constraint_sizes`, each batch has sizes of its own.
    """

    def __init__(
        self,
        params: Params,
        models: Models,
        config: DecodingConfig,
        *,
        n_best: int = 1,
        suppress: tuple[int, ...] = (UNK,),
        sampling: Sampling | None = None,
        mesh: Mesh | None = None,
        shortlist: Shortlist | None = None,
        trees: Brackets | None = None,
        constraint_sizes: Sequence[ConstraintSizes] = (),
        text_of: TextOf | None = None,
    ) -> None:
        mesh = local_mesh() if mesh is None else mesh
        self._rules = batch_search.rules_for(
            config,
            n_best=n_best,
            # As many again, since the likeliest outputs may be one text in several segmentations.
            # With groups, other groups' outputs are the spare ones.
            spare=n_best if text_of and n_best > 1 and config.diverse_groups == 1 else 0,
            suppress=suppress,
            sampling=sampling,
            trees=trees,
        )
        self._text_of = text_of
        self._weights = batch_search.weights_for(config, drawn := sampling or Sampling())
        platform = mesh.devices.flat[0].platform
        models, params = batch_search.suited(models, whole_on(params, mesh), platform)
        self._models, self._params, self._mesh = models, params, mesh
        self._split = batch_search.parts_of(mesh)
        self._small = batch_search.is_small(params, mesh)
        self._in_blocks = platform == "cpu" and mesh.size == 1
        self._ahead = platform not in LAZY and shortlist is None
        self._fewer = batch_search.FEWER if platform in LAZY else batch_search.FEWEST
        self._as_called: Callable[[Any], Callable[..., State]] = lambda program: program
        self._config, self._seed = config, drawn.seed
        self._shortlist = shortlist
        self._constraint_sizes = constraint_sizes
        self._prepared: ConstraintSizes | None = None  # which `compile` compiles for
        self._longest = min(model.config.max_length for model in models)

    def decode(
        self, sources: Sequence[Source], *, continues: np.ndarray | None = None
    ) -> list[list[Decoded]]:
        """Up to `n_best` outputs of each source, best first, in the sources' order.

        An output has at most `max_ratio` times the source's tokens plus `max_extra_tokens`, and at
        most `model.max_length`, end marks included. Sources with `phrases` need `continues`, which
        says what types don't begin a word, and plain beam search. Raises DecodingError, ValueError
        without `continues`, and LineError for a source that can have no output.
        """
        if continues is not None:
            check_rules(self._rules)
        elif any(source.phrases for source in sources):
            raise ValueError("sources with phrases need `continues`")
        limits = [self._limit(len(source.tokens)) for source in sources]
        for number, source in enumerate(sources):
            if not 1 <= (length := len(source.tokens)) <= self._longest:
                what = f"source {number} has {length} tokens, end mark included; the model takes"
                raise DecodingError(f"{what} 1 to {self._longest} (model.max_length)")
            if (begun := len(source.prefix)) >= (limit := limits[number]):
                why = f"has a prefix of {begun} tokens, but its translation has at most "
                raise LineError(number, f"{why}{limit}, end mark included")
            if any(forbids(each, source.prefix, room=limit - begun) for each in source.forbidden):
                raise LineError(number, "its prefix has a forbidden phrase, or must end in one")
            if continues is not None:
                check_room(number, source.phrases, source.prefix, limit, continues)
        decoded: list[list[Decoded]] = [[] for _ in sources]
        planned = deque(self._planned([len(source.tokens) for source in sources]))
        plain = not any(each.prefix or each.forbidden or each.phrases for each in sources)
        if self._ahead and plain:
            self._compile({(batch.rows, batch.length) for batch in planned})
        while planned:
            batch = planned.popleft()
            own = [sources[number] for number in batch.numbers]
            try:
                among, types, given = self._arranged(own, batch, continues)
            except TooManyForbidden as error:
                if len(own) == 1:
                    raise LineError(batch.numbers[0], str(error)) from None
                half = len(own) // 2
                for numbers in (batch.numbers[half:], batch.numbers[:half]):
                    planned.appendleft(batch._replace(numbers=numbers))
                continue
            whose, length = np.full(given[1].size, -1), self._limit(batch.length)
            whose[: len(own)] = batch.numbers
            searched = (
                among._side_by_side(given, whose, length=length, rows=batch.rows)
                if self._small
                else among._searched(given, whose, length=length)
            )
            with contextlib.closing(searched):
                for at, found in searched:
                    for row in np.flatnonzero(at >= 0).tolist():
                        number = int(at[row])
                        source, limit = sources[number], limits[number]
                        try:
                            decoded[number] = decoded_of(
                                found, row, limit, self._rules, types, text_of=self._text_of
                            )
                        except DecodingError:
                            if not (source.phrases and source.forbidden):
                                raise
                            why = f"the search found no translation of at most {limit} tokens "
                            why += "with all its constraints and without forbidden phrases"
                            raise LineError(number, why) from None
        return decoded

    def _arranged(
        self, own: Sequence[Source], batch: PlannedBatch, continues: np.ndarray | None
    ) -> tuple["Decoder", np.ndarray, BatchArrays]:
        """The decoder for a batch of sources, the types of its ids, and the batch's arrays."""
        widest = max(len(source.prefix) for source in own)
        width = power_of_two_at_least(widest) if widest else 0  # compiled in: few of them
        threads = batch_search.threads_for(len(own), batch.rows) if self._small else 1
        room = -(-len(own) // (batch.rows * threads)) * batch.rows * threads
        phrases = [source.phrases for source in own]
        among, types = self._shortened(
            [source.tokens for source in own],
            *(source.prefix for source in own),
            *(each.tokens for some in phrases for each in some),
        )
        src, src_lengths, rows = batch_search.padding(room, batch.length, prefix=width)
        for row, source in enumerate(own):
            src_lengths[row] = length = len(source.tokens)
            src[row, :length] = source.tokens
            rows.limits[row] = self._limit(length)
            if (trees := self._rules.trees) is not None:
                rows.words[row] = length - 1 if trees.of_source else source.words
            rows.prefix[row, : len(source.prefix)] = np.searchsorted(types, source.prefix)
            rows.seeds[row] = seed_words(self._seed, *source.number)
        weights: dict[str, np.ndarray] = {}
        if automata := [automaton for source in own for automaton in source.forbidden]:
            weights["forbidden"], begins = table_of(automata, types, among._rules.suppress)
            states: Any = np.zeros((room, max(len(source.forbidden) for source in own)), np.int32)
            for row, source in enumerate(own):
                of_row = [begins[id(automaton)] for automaton in source.forbidden]
                states[row, : len(of_row)] = of_row
            rows = rows._replace(forbidden=states)
        if continues is not None and any(phrases):
            weights["continues"] = continues[types]
            rows = rows._replace(phrases=arranged(phrases, types, room, continues))
        if weights:
            rows, weights = among._in_sizes(rows, weights, len(types))
            among = copy.copy(among)
            placed = {name: whole_on(array, self._mesh) for name, array in weights.items()}
            among._weights = self._weights._replace(**placed)
        return among, types, (src, src_lengths, rows)

    def _in_sizes(
        self, rows: Sentences, weights: dict[str, np.ndarray], types: int
    ) -> tuple[Sentences, dict[str, np.ndarray]]:
        """A batch's constraints in the first of the sizes that has room for them. Raises
        DecodingError if none has."""
        count, longest = (0, 0) if rows.phrases is None else rows.phrases.tokens.shape[1:]
        states = len(weights["forbidden"]) if "forbidden" in weights else 0
        if not self._constraint_sizes:
            return rows, weights
        for sizes in self._constraint_sizes:
            if count > sizes.phrases or longest > sizes.tokens or states > sizes.states:
                continue
            empty, none = self._empty(sizes, len(rows.limits), types)
            for name, array in weights.items():
                wider = [(0, len(none[name]) - len(array)), *[(0, 0)] * (array.ndim - 1)]
                none[name] = np.pad(array, wider).astype(none[name].dtype)
            if rows.forbidden is not None:
                empty = empty._replace(forbidden=rows.forbidden)
            if rows.phrases is not None:
                phrases = in_larger_arrays(
                    rows.phrases, sizes.phrases, sizes.tokens, weights["continues"]
                )
                empty = empty._replace(phrases=phrases)
            return rows._replace(forbidden=empty.forbidden, phrases=empty.phrases), none
        raise DecodingError(
            f"a sentence takes at most {sizes.phrases} required phrases of {sizes.tokens} tokens "
            f"and about {sizes.states:,} letters of forbidden phrases: give it fewer or shorter "
            "ones"
        )

    def _empty(
        self, sizes: ConstraintSizes, rows: int, types: int
    ) -> tuple[Sentences, dict[str, np.ndarray]]:
        """Arrays of these sizes that constrain nothing; without required phrases if the search has
        something that these don't work with."""
        table = np.zeros((sizes.states, types), entry_type(sizes.states))
        weights: dict[str, np.ndarray] = {"forbidden": table}
        _, _, sentences = batch_search.padding(rows, 0)
        begins: Any = np.zeros((rows, 1), np.int32)
        sentences = sentences._replace(forbidden=begins)
        try:
            check_rules(self._rules)
        except DecodingError:
            return sentences, weights
        tokens: Any = np.full((rows, sizes.phrases, sizes.tokens), PAD, np.int32)
        may_go_on: Any = np.zeros(tokens.shape[:2], bool)
        continues = np.zeros(types, bool)
        phrases = in_larger_arrays(
            Phrases(tokens, may_go_on), sizes.phrases, sizes.tokens, continues
        )
        return sentences._replace(phrases=phrases), weights | {"continues": continues}

    def _padding(self, rows: int, length: int) -> BatchArrays:
        """Arrays of an empty batch, with constraints if these are prepared."""
        src, lengths, sentences = batch_search.padding(rows, length)
        if self._prepared is not None:
            empty, _ = self._empty(self._prepared, rows, self._models[0].tgt_vocab_size)
            sentences = sentences._replace(forbidden=empty.forbidden, phrases=empty.phrases)
        return src, lengths, sentences

    def _shortened(
        self, sources: Sequence[Sequence[int]], *needed: Sequence[int]
    ) -> tuple["Decoder", np.ndarray]:
        """A decoder with the shortlist's target types for these sources, and the type that each of
        its ids stands for. Sizes are rounded to few by adding or dropping types, since each is
        compiled; those of `needed` stay."""
        whole = np.arange(self._models[0].tgt_vocab_size)
        if self._shortlist is None or self._rules.trees is not None:
            return self, whole
        never = np.setdiff1d(self._rules.suppress, (UNK,))
        must = distinct((PAD, BOS, EOS, UNK), *needed)
        wanted = distinct(must, self._shortlist.types(sources))
        most = max(len(wanted) * 2 // 3, len(must), LEAST_TYPES)
        size = one_of_few(most, LEAST_TYPES) if self._small else power_of_two_at_least(most)
        types = distinct(wanted, self._shortlist.ranked)
        types = np.sort(types[~np.isin(types, never)][:size])
        if len(types) < size:
            return self, whole
        short = copy.copy(self)
        short._shortlist = None
        short._params = tuple(
            of_types(own, model.config, types)
            for own, model in zip(self._params, self._models, strict=True)
        )
        short._models = tuple(model.of_types(size) for model in self._models)
        suppress = (UNK,) if UNK in self._rules.suppress else ()
        short._rules = dataclasses.replace(self._rules, suppress=suppress)
        return short, types

    def compile(
        self, lengths: Sequence[int], *, longest: int = 0, constrained: bool = False
    ) -> frozenset[tuple[int, int]]:
        """Compiles what `decode` may need for sources of these lengths, or for as many with some of
        up to `longest` tokens; returns the batches' shapes, (rows, source length). `constrained`
        ones have phrases in the first of the `constraint_sizes`."""
        among, _ = self._shortened([[EOS]])  # the fewest types: enough for few sentences
        if among is not self:
            return among.compile(lengths, longest=longest, constrained=constrained)
        if constrained and self._prepared is None:
            among = copy.copy(self)
            among._prepared = self._constraint_sizes[0]
            _, weights = self._empty(among._prepared, 1, self._models[0].tgt_vocab_size)
            placed = {name: whole_on(array, self._mesh) for name, array in weights.items()}
            among._weights = self._weights._replace(**placed)
            return among.compile(lengths, longest=longest, constrained=True)
        if self._small:
            shapes = frozenset((rows, length) for _, rows, length in self._planned(lengths))
            for rows, src_length in shapes:
                limit = self._limit(src_length)
                sizes = batch_search.rooms_of_small(src_length, limit)
                begun = self._begun(self._padding(rows, src_length), limit, sizes[0])
                begun = jax.tree.map(np.asarray, begun)
                for room in sizes:
                    some = batch_search.rows_of(begun, np.arange(1))
                    self._advanced(batch_search.filled(some, rows, room=room), room)
            return shapes
        split = self._split
        shapes = shapes_among(lengths, self._config, self._longest, split=split, longest=longest)
        if self._ahead:
            self._compile(shapes)
        self._compile(shapes, run=True)
        return shapes

    def _planned(self, lengths: Sequence[int]) -> Iterator[PlannedBatch]:
        if self._small:
            return plan_groups(lengths, self._config, self._longest)
        return plan_batches(lengths, self._config, self._longest, split=self._split)

    def _limit(self, length: int) -> int:
        return output_limit(self._config, length, self._longest)

    def _searched(
        self, sources: BatchArrays, numbers: np.ndarray, *, length: int
    ) -> Generator[tuple[np.ndarray, Hypotheses]]:
        """Source numbers (-1: padding) and the hypotheses of as many rows, as they finish. When the
        cache is full or few sentences are left, finished ones leave and the cache grows: early
        steps don't read room that only late ones need."""
        parts, room = self._split, batch_search.more_room(0, length)
        state = self._begun(sources, length, room)
        while True:
            rows = len(numbers) // parts
            few = batch_search.shrunk(rows, self._fewer)
            state = self._advanced(state, room, few)
            stopped = np.asarray(state.stopped)
            if stopped.all():
                yield numbers, jax.tree.map(np.asarray, state.finished)
                return
            live = (~stopped).reshape(parts, rows)
            fewer = few if live.sum(axis=1).max() <= few else rows
            # Live rows come first, in their order.
            kept = np.argsort(~live, axis=1, kind="stable")[:, :fewer]
            if fewer < rows:
                leaving = np.where(stopped, numbers, -1)
                yield leaving, jax.tree.map(np.asarray, state.finished)
                flat = (kept + rows * np.arange(parts)[:, None]).reshape(-1)
                numbers = np.where(stopped, -1, numbers)[flat]
            if int(state.position) == room:
                room = batch_search.more_room(room, length)
            state = self._reshaped(state, kept, room)

    def _side_by_side(
        self, sources: BatchArrays, numbers: np.ndarray, *, length: int, rows: int
    ) -> Generator[tuple[np.ndarray, Hypotheses]]:
        """As `_refilled`, on several threads, each with as many of the rows. Closing the generator
        ends them all."""
        threads = batch_search.threads_for(len(numbers), rows)
        closed = threading.Event()

        def part(first: int) -> list[tuple[np.ndarray, Hypotheses]]:
            own = slice(first, None, threads)
            mine = jax.tree.map(operator.itemgetter(own), sources)
            found = self._refilled(mine, numbers[own], length=length, rows=rows)
            return list(itertools.takewhile(lambda _: not closed.is_set(), found))

        with ThreadPoolExecutor(threads) as pool:
            try:
                yield from itertools.chain.from_iterable(pool.map(part, range(threads)))
            finally:
                closed.set()

    def _refilled(
        self, sources: BatchArrays, numbers: np.ndarray, *, length: int, rows: int
    ) -> Generator[tuple[np.ndarray, Hypotheses]]:
        """As `_searched`, for any multiple of `rows` rows, in batches of that size. When many of a
        batch's sentences are finished, the rest wait for others at the same step."""
        rooms = batch_search.rooms_of_small(sources[0].shape[1], length)
        first, stride = rooms[0], max(STRIDE, length // STRIDE)
        new = list(range(0, len(numbers), rows))[::-1]
        waiting: dict[int, tuple[np.ndarray, State]] = {}  # by the steps taken
        while new or waiting:
            full = [steps for steps, (whose, _) in waiting.items() if len(whose) >= rows]
            if new and not full:
                cut = slice(start := new.pop(), start + rows)
                whose, steps, room = numbers[cut], 0, first
                state = self._begun(jax.tree.map(operator.itemgetter(cut), sources), length, first)
            else:
                steps = full[0] if full else min(waiting)
                every, state = waiting.pop(steps)
                if len(every) > rows:
                    rest = np.arange(rows, len(every))
                    waiting[steps] = every[rest], batch_search.rows_of(state, rest)
                whose = np.full(rows, -1)
                whose[: len(every)] = every[:rows]
                room = first if steps < first else length
                state = batch_search.filled(state, rows, room=room)
            leave_at = rows * 3 // 4 if new or waiting else 0
            state = self._advanced(state, room, leave_at, stride)
            host = jax.tree.map(np.asarray, state)
            live, steps = ~host.stopped, int(host.position)
            yield np.where(live, -1, whose), host.finished
            if live.any():
                left = whose[live], batch_search.rows_of(host, live)
                known = waiting.get(steps)
                waiting[steps] = left if known is None else batch_search.merged(known, left)

    def _compile(self, shapes: Collection[tuple[int, int]], *, run: bool = False) -> None:
        """All programs that batches of these shapes may need, as many at once as there are cores.
        JAX finds them at their first call. With `run` each is called, one after another, on
        padding: what the device has no memory for fails now."""
        caller, parts = copy.copy(self), self._split
        if not run:
            caller._as_called = batch_search.compiled

        def begun(shape: tuple[int, int]) -> list[tuple[State, int]]:
            length = self._limit(shape[1])
            room = batch_search.more_room(0, length)
            return [(caller._begun(caller._padding(*shape), length, room), room)]

        def advanced(shape: tuple[int, int], state: State, room: int) -> list[tuple[State, int]]:
            own, length = state.stopped.size // parts, self._limit(shape[1])
            state = caller._advanced(state, room)
            changed = []
            for fewer in {own, batch_search.shrunk(own, self._fewer)} - {0}:
                for other in {room, batch_search.more_room(room, length)}:
                    if (fewer, other) != (own, room):
                        kept = np.tile(np.arange(fewer), (parts, 1))
                        changed.append((caller._reshaped(state, kept, other), other))
            return changed

        known = set()
        pool = ThreadPoolExecutor(1 if run else processors())
        try:
            tasks = deque((shape, pool.submit(begun, shape)) for shape in shapes)
            while tasks:
                shape, task = tasks.popleft()
                for state, room in task.result():
                    if (key := (shape, state.stopped.size, room)) not in known:
                        known.add(key)
                        tasks.append((shape, pool.submit(advanced, shape, state, room)))
        finally:
            pool.shutdown(cancel_futures=True)

    def _begun(self, sources: BatchArrays, length: int, room: int) -> State:
        blocks = batch_search.blocks_of(*sources[0].shape) if self._in_blocks else 1
        static: Any = {"models": self._models, "rules": self._rules, "blocks": blocks}
        begin = self._as_called(batch_search.begin_search)
        with on_mesh(self._mesh):
            placed = place_batch(sources, self._mesh)
            return begin(self._params, *placed, **static, length=length, room=room)

    def _advanced(self, state: State, until: int, leave_at: int = 0, stride: int = 1) -> State:
        numbers = np.int32(until), np.int32(leave_at), np.int32(stride)
        if self._small:  # however a state is placed, it needs the same program
            state = whole_on(state, self._mesh)
        advance = self._as_called(batch_search.advance_search)
        with on_mesh(self._mesh):
            static: Any = {"models": self._models, "rules": self._rules, "parts": self._split}
            return advance(self._params, state, self._weights, *numbers, **static)

    def _reshaped(self, state: State, kept: np.ndarray, room: int) -> State:
        change = self._as_called(batch_search.reshaped)
        with on_mesh(self._mesh):
            kept = place_batch(kept.astype(np.int32), self._mesh)
            return change(state, kept, parts=self._split, room=room)
