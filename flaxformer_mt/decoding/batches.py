"""Token ids to token ids in batches of few shapes, shared by translation and validation."""

import contextlib
import copy
import dataclasses
import operator
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.shortlist import Shortlist, distinct
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding import batch_search
from flaxformer_mt.decoding.batch_search import (
    Models,
    Params,
    Sources,
    padding,
    parts_of,
    rules_for,
)
from flaxformer_mt.decoding.batch_shapes import (
    Batch,
    one_of_few,
    plan_batches,
    plan_groups,
    power_of_two_at_least,
    shapes_among,
)
from flaxformer_mt.decoding.forbidden import Forbidden, forbids, table_of
from flaxformer_mt.decoding.rules import Brackets
from flaxformer_mt.decoding.sampling import Sampling, seed_words
from flaxformer_mt.decoding.search import Hypotheses, Sentences, State, Weights
from flaxformer_mt.decoding.segments import DecodingError, LineError, output_limit
from flaxformer_mt.decoding.terminology import Constraints, arranged
from flaxformer_mt.decoding.translation import Decoded, decoded_of
from flaxformer_mt.model.embedding import of_types
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.mesh import local_mesh, on_mesh, place_batch, whole_on

LEAST_TYPES = 1024  # target types of the smallest search with a shortlist
STRIDE = 8  # a small model's sentences leave a batch at multiples of this many steps


def translate_ids(
    params: Mapping[str, Any],
    model: Transformer,
    sources: Sequence[Sequence[int]],
    config: DecodingConfig,
) -> list[list[int]]:
    """The best output of each source (pieces + EOS), without its end mark. Programs are kept for
    further calls. Raises DecodingError."""
    decoded = Decoder((params,), (model,), config).decode(sources)
    return [list(hypotheses[0].tokens) for hypotheses in decoded]


class Decoder:
    """Searches with fixed models and settings. Raises ValueError for contradictory ones.

    `params` holds the tree under "params" of each of `models`; several are an ensemble, whose
    probability is their mean. A batch's sentences are split over the data axes of `mesh` (default:
    this process's devices). With `sampling`, the beam holds that many draws. With a `shortlist`,
    outputs use only its types for the batch's sources, and probabilities are relative to these.
    With `trees`, outputs are trees over these types, without a shortlist.
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
    ) -> None:
        mesh = local_mesh() if mesh is None else mesh
        drawn = sampling or Sampling()
        self._rules = rules_for(
            config, n_best=n_best, suppress=suppress, sampling=sampling, trees=trees
        )
        self._weights = Weights(
            alpha=config.length_penalty,
            average=config.length_norm == "average",
            beta=config.coverage_penalty,
            diversity=config.diversity,
            temperature=drawn.temperature,
            top_p=drawn.top_p,
        )
        platform = mesh.devices.flat[0].platform
        models, params = batch_search.suited(models, whole_on(params, mesh), platform)
        self._params, self._mesh, self._split = params, mesh, parts_of(mesh)
        self._small = batch_search.is_small(params, mesh)
        self._in_blocks = platform == "cpu" and mesh.size == 1
        self._static: Any = {"models": models, "rules": self._rules}
        self._config, self._seed = config, drawn.seed
        self._shortlist = shortlist
        self._longest = min(model.config.max_length for model in models)

    def decode(
        self,
        sources: Sequence[Sequence[int]],
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        numbers: Sequence[tuple[int, int]] | None = None,
        words: Sequence[int] = (),
        forbidden: Sequence[Sequence[Forbidden]] | None = None,
        constraints: Constraints | None = None,
    ) -> list[list[Decoded]]:
        """Up to `n_best` outputs of each source (pieces + EOS), best first, in the sources' order.

        An output has at most `max_ratio` times the source's tokens plus `max_extra_tokens`, and at
        most `model.max_length`, end marks included. It begins with its source's prefix. A tree has
        as many leaves as the source has `words`, unless they are its own. Draws depend on the seed
        and the source's number: a line and its piece (default: its place). Automata in `forbidden`
        read outputs, which have all phrases of their `constraints`. Raises DecodingError, and
        LineError for a source that can have no output.
        """
        if constraints is not None:
            constraints.check_rules(self._rules)
        lengths, limits = [], []
        prefixes = [()] * len(sources) if prefixes is None else prefixes
        numbers = [(place, 0) for place in range(len(sources))] if numbers is None else numbers
        for number, (source, prefix) in enumerate(zip(sources, prefixes, strict=True)):
            length, limit = len(source), self._limit(len(source))
            if not 1 <= length <= self._longest:
                what = f"source {number} has {length} tokens, end mark included"
                raise DecodingError(
                    f"{what}; the model takes 1 to {self._longest} (model.max_length)"
                )
            if len(prefix) >= limit:
                why = f"has a prefix of {len(prefix)} tokens, but its translation has at most "
                raise LineError(number, f"{why}{limit}, end mark included")
            for automaton in () if forbidden is None else forbidden[number]:
                if forbids(automaton, prefix, room=limit - len(prefix)):
                    raise LineError(number, "its prefix has a forbidden phrase, or must end in one")
            if constraints is not None:
                constraints.check(number, prefix, limit)
            lengths.append(length)
            limits.append(limit)
        decoded: list[list[Decoded]] = [[] for _ in sources]
        for batch in self._planned(lengths):
            widest = max(len(prefixes[number]) for number in batch.numbers)
            width = power_of_two_at_least(widest) if widest else 0  # compiled in: few of them
            threads = batch_search.threads_for(len(batch.numbers), batch.rows) if self._small else 1
            room = -(-len(batch.numbers) // (batch.rows * threads)) * batch.rows * threads
            whose = np.full(room, -1)
            phrases = [] if constraints is None else [constraints.each[n] for n in batch.numbers]
            among, types = self._shortened(
                [sources[number] for number in batch.numbers],
                *(prefixes[number] for number in batch.numbers),
                *(each.tokens for own in phrases for each in own),
            )
            src, src_lengths, rows = padding(room, batch.length, prefix=width)
            for row, number in enumerate(batch.numbers):
                whose[row], src_lengths[row] = number, lengths[number]
                src[row, : lengths[number]] = sources[number]
                rows.limits[row] = limits[number]
                if (trees := self._rules.trees) is not None:
                    rows.words[row] = lengths[number] - 1 if trees.of_source else words[number]
                begun = np.asarray(prefixes[number], np.int32)
                rows.prefix[row, : len(begun)] = np.searchsorted(types, begun)
                rows.seeds[row] = seed_words(self._seed, *numbers[number])
            if forbidden is not None:
                among, rows = among._without([forbidden[n] for n in batch.numbers], types, rows)
            if constraints is not None and any(phrases):
                among = among._weighted(continues=constraints.continues[types])
                rows = rows._replace(phrases=arranged(phrases, types, room))
            given, most = (src, src_lengths, rows), self._limit(batch.length)
            searched = (
                among._side_by_side(given, whose, length=most, rows=batch.rows)
                if self._small
                else among._searched(given, whose, length=most)
            )
            with contextlib.closing(searched):
                for at, found in searched:
                    for row, number in enumerate(at):
                        if number < 0:
                            continue
                        try:
                            read = found, row, limits[number], self._rules, types
                            decoded[number] = decoded_of(*read)
                        except DecodingError:
                            bound = forbidden is not None and forbidden[number]
                            if constraints is None or not (constraints.each[number] and bound):
                                raise
                            why = f"the search found no translation of at most {limits[number]} "
                            why += "tokens with all its constraints and without forbidden phrases"
                            raise LineError(number, why) from None
        return decoded

    def _without(
        self, forbidden: Sequence[Sequence[Forbidden]], types: np.ndarray, rows: Sentences
    ) -> tuple["Decoder", Sentences]:
        """A decoder with a batch's table of automata, and the rows with their states in it."""
        if not (width := max(map(len, forbidden))):
            return self, rows
        found = [automaton for own in forbidden for automaton in own]
        table, begins = table_of(found, types, self._rules.suppress)
        own: Any = np.zeros((len(rows.limits), width), np.int32)
        for row, automata in enumerate(forbidden):
            own[row, : len(automata)] = [begins[id(each)] for each in automata]
        return self._weighted(forbidden=table), rows._replace(forbidden=own)

    def _weighted(self, **weights: np.ndarray) -> "Decoder":
        other = copy.copy(self)
        placed = {name: whole_on(array, self._mesh) for name, array in weights.items()}
        other._weights = self._weights._replace(**placed)
        return other

    def _shortened(
        self, sources: Sequence[Sequence[int]], *needed: Sequence[int]
    ) -> tuple["Decoder", np.ndarray]:
        """A decoder with the shortlist's target types for these sources, and the type that each of
        its ids stands for. Sizes are rounded to few by adding or dropping types, since each is
        compiled; those of `needed` stay."""
        models = self._static["models"]
        whole = np.arange(models[0].tgt_vocab_size)
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
            for own, model in zip(self._params, models, strict=True)
        )
        models = tuple(model.of_types(size) for model in models)
        suppress = (UNK,) if UNK in self._rules.suppress else ()
        short._rules = dataclasses.replace(self._rules, suppress=suppress)
        short._static = {"models": models, "rules": short._rules}
        return short, types

    def compile(self, lengths: Sequence[int], *, longest: int = 0) -> frozenset[tuple[int, int]]:
        """Compiles what `decode` may need for sources of these lengths, or for as many with some of
        up to `longest` tokens; returns the batches' shapes, (rows, source length)."""
        among, _ = self._shortened([[EOS]])  # the fewest types: enough for few sentences
        if among is not self:
            return among.compile(lengths, longest=longest)
        if self._small:
            shapes = frozenset((rows, length) for _, rows, length in self._planned(lengths))
            for rows, src_length in shapes:
                limit = self._limit(src_length)
                sizes = batch_search.rooms_of_small(src_length, limit)
                begun = self._begun(padding(rows, src_length), limit, sizes[0])
                begun = jax.tree.map(np.asarray, begun)
                for room in sizes:
                    some = batch_search.rows_of(begun, np.arange(1))
                    self._advanced(batch_search.filled(some, rows, room=room), room)
            return shapes
        split = self._split
        shapes = shapes_among(lengths, self._config, self._longest, split=split, longest=longest)
        for rows, src_length in shapes:
            self._compile(rows, src_length, length=self._limit(src_length))
        return shapes

    def _planned(self, lengths: Sequence[int]) -> Iterator[Batch]:
        if self._small:
            return plan_groups(lengths, self._config, self._longest)
        return plan_batches(lengths, self._config, self._longest, split=self._split)

    def _limit(self, length: int) -> int:
        return output_limit(self._config, length, self._longest)

    def _searched(
        self, sources: Sources, numbers: np.ndarray, *, length: int
    ) -> Generator[tuple[np.ndarray, Hypotheses]]:
        """Source numbers (-1: padding) and the hypotheses of as many rows, as they finish. When the
        cache is full or few sentences are left, finished ones leave and the cache grows: early
        steps don't read room that only late ones need."""
        parts, room = self._split, batch_search.more_room(0, length)
        state = self._begun(sources, length, room)
        while True:
            rows = len(numbers) // parts
            state = self._advanced(state, room, rows // batch_search.FEWER)
            stopped = np.asarray(state.stopped)
            if stopped.all():
                yield numbers, jax.tree.map(np.asarray, state.finished)
                return
            live = (~stopped).reshape(parts, rows)
            fewer = batch_search.fewer_rows(rows, int(live.sum(axis=1).max()))
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
        self, sources: Sources, numbers: np.ndarray, *, length: int, rows: int
    ) -> Generator[tuple[np.ndarray, Hypotheses]]:
        """As `_refilled`, on several threads, each with as many of the rows."""
        threads = batch_search.threads_for(len(numbers), rows)

        def part(first: int) -> Iterator[tuple[np.ndarray, Hypotheses]]:
            own = slice(first, None, threads)
            mine = jax.tree.map(operator.itemgetter(own), sources)
            return self._refilled(mine, numbers[own], length=length, rows=rows)

        return batch_search.on_threads(part, threads)

    def _refilled(
        self, sources: Sources, numbers: np.ndarray, *, length: int, rows: int
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
                waiting[steps] = left if known is None else batch_search.joined(known, left)

    def _compile(self, rows: int, src_length: int, *, length: int) -> None:
        """Calls all programs that a batch of this shape may need, on padding."""
        parts, room = self._split, batch_search.more_room(0, length)
        known = {(rows // parts, room)}
        states = [(self._begun(padding(rows, src_length), length, room), room)]
        while states:
            state, room = states.pop()
            own = state.stopped.size // parts
            state = self._advanced(state, room, own // batch_search.FEWER)
            for fewer in sorted({batch_search.fewer_rows(own, live + 1) for live in range(own)}):
                for other in sorted({room, batch_search.more_room(room, length)}):
                    if (fewer, other) == (own, room):
                        continue
                    kept = np.tile(np.arange(fewer), (parts, 1))
                    changed = self._reshaped(state, kept, other)
                    if (fewer, other) not in known:
                        known.add((fewer, other))
                        states.append((changed, other))

    def _begun(self, sources: Sources, length: int, room: int) -> State:
        blocks = batch_search.blocks_of(*sources[0].shape) if self._in_blocks else 1
        with on_mesh(self._mesh):
            placed = place_batch(sources, self._mesh)
            return batch_search.begin(
                self._params, *placed, **self._static, length=length, room=room, blocks=blocks
            )

    def _advanced(self, state: State, until: int, leave_at: int = 0, stride: int = 1) -> State:
        numbers = np.int32(until), np.int32(leave_at), np.int32(stride)
        if self._small:  # however a state is placed, it needs the same program
            state = whole_on(state, self._mesh)
        with on_mesh(self._mesh):
            return batch_search.advance(
                self._params, state, self._weights, *numbers, **self._static, parts=self._split
            )

    def _reshaped(self, state: State, kept: np.ndarray, room: int) -> State:
        with on_mesh(self._mesh):
            kept = place_batch(kept.astype(np.int32), self._mesh)
            return batch_search.reshaped(state, kept, parts=self._split, room=room)
