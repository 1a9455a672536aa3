"""The search of one batch, stretch by stretch, in the few shapes that a batch goes through."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np
from jax.sharding import Mesh

from flaxformer_mt.data.vocabulary import PAD
from flaxformer_mt.decoding import programs
from flaxformer_mt.decoding.batches import FEWER, fewer_rows, more_room
from flaxformer_mt.decoding.programs import Models, Params, parts_of
from flaxformer_mt.decoding.rules import Rules
from flaxformer_mt.decoding.sampling import SEED_WORDS
from flaxformer_mt.decoding.search import Hypotheses, Sentences, State, Weights
from flaxformer_mt.parallel import on_mesh, place_batch


@dataclasses.dataclass(frozen=True)
class BatchSearch:
    """Batches searched with the same models and settings."""

    params: Params
    models: Models
    rules: Rules
    weights: Weights
    mesh: Mesh

    def run(
        self,
        sources: tuple[np.ndarray, np.ndarray],
        numbers: np.ndarray,
        sentences: Sentences,
        *,
        length: int,
    ) -> Iterator[tuple[np.ndarray, Hypotheses]]:
        """Source numbers and the hypotheses of as many rows, once they are finished.

        `sources` are token ids [rows, src_length] and their lengths; `numbers` says whose each row
        is, -1 where it is padding.
        """
        parts = parts_of(self.mesh)
        room = more_room(0, length)
        state = self._begun(sources, sentences, length, room)
        while True:
            rows = len(numbers) // parts
            state = self._advanced(state, parts)
            stopped = np.asarray(state.stopped)
            if stopped.all():
                yield numbers, jax.tree.map(np.asarray, state.finished)
                return
            live = (~stopped).reshape(parts, rows)
            fewer = fewer_rows(rows, int(live.sum(axis=1).max()))
            # Of those that stay the live ones come first, in their order.
            kept = np.argsort(~live, axis=1, kind="stable")[:, :fewer]
            if fewer < rows:
                leaving = np.where(stopped, numbers, -1)
                yield leaving, jax.tree.map(np.asarray, state.finished)
                flat = (kept + rows * np.arange(parts)[:, None]).reshape(-1)
                numbers = np.where(stopped, -1, numbers)[flat]
            if int(state.position) == room:
                room = more_room(room, length)
            state = self._reshaped(state, kept, parts, room)

    def compile(self, rows: int, src_length: int, *, length: int) -> None:
        """All programs that a batch of this shape may come to need, whatever its sentences are.

        Each is called on rows of padding, which are finished from the start.
        """
        parts = parts_of(self.mesh)
        room = more_room(0, length)
        sources = np.full((rows, src_length), PAD, np.int32), np.zeros(rows, np.int32)
        nobody = Sentences(
            np.zeros(rows, np.int32),  # type: ignore[arg-type]
            np.zeros((rows, 0), np.int32),  # type: ignore[arg-type]
            np.zeros((rows, SEED_WORDS), np.uint32),  # type: ignore[arg-type]
        )
        known = {(rows // parts, room)}
        states = [(self._begun(sources, nobody, length, room), room)]
        while states:
            state, room = states.pop()
            state = self._advanced(state, parts)
            own = state.stopped.size // parts
            for fewer in sorted({fewer_rows(own, live + 1) for live in range(own)}):
                for other in sorted({room, more_room(room, length)}):
                    if (fewer, other) == (own, room):
                        continue
                    kept = np.tile(np.arange(fewer), (parts, 1))
                    changed = self._reshaped(state, kept, parts, other)
                    if (fewer, other) not in known:
                        known.add((fewer, other))
                        states.append((changed, other))

    def _begun(
        self, sources: tuple[np.ndarray, np.ndarray], sentences: Sentences, length: int, room: int
    ) -> State:
        with on_mesh(self.mesh):
            return programs.begin(
                self.params,
                *place_batch((*sources, sentences), self.mesh),
                models=self.models,
                rules=self.rules,
                length=length,
                room=room,
            )

    def _advanced(self, state: State, parts: int) -> State:
        """Until the cache is full or a batch of fewer rows is enough."""
        with on_mesh(self.mesh):
            return programs.advance(
                self.params,
                state,
                self.weights,
                np.int32(state.stopped.size // parts // FEWER),
                models=self.models,
                rules=self.rules,
                parts=parts,
            )

    def _reshaped(self, state: State, kept: np.ndarray, parts: int, room: int) -> State:
        with on_mesh(self.mesh):
            kept = place_batch(kept.astype(np.int32), self.mesh)
            return programs.reshaped(state, kept, parts=parts, room=room)
