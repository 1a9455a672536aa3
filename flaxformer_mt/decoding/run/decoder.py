"""Token ids to token ids, in batches of few shapes."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh

from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.data.shortlist import Shortlist
from flaxformer_mt.data.vocabulary import EOS, UNK
from flaxformer_mt.decoding.constraints.symbols import Continues
from flaxformer_mt.decoding.errors import LineError, TooManyPhrases
from flaxformer_mt.decoding.masks.base import Mask
from flaxformer_mt.decoding.masks.trees import Brackets
from flaxformer_mt.decoding.run.arrays import (
    BatchArrays,
    BatchFiller,
    ConstraintSizes,
    FilledBatch,
)
from flaxformer_mt.decoding.run.checks import check_rules, check_source
from flaxformer_mt.decoding.run.output_reader import OutputReader
from flaxformer_mt.decoding.run.programs import Models, Params, SearchPrograms
from flaxformer_mt.decoding.run.schedules import Padding, schedule_for
from flaxformer_mt.decoding.run.shortlists import shortened
from flaxformer_mt.decoding.run.sizes import PlannedBatch, with_batch_tokens
from flaxformer_mt.decoding.search.sampling import Sampling
from flaxformer_mt.decoding.search.settings import numbers_for, rules_for
from flaxformer_mt.decoding.search.state import Hypotheses
from flaxformer_mt.decoding.source import Source, Types
from flaxformer_mt.decoding.text.decoded import Decoded, TextOf
from flaxformer_mt.decoding.text.limits import OutputLimits
from flaxformer_mt.parallel.mesh import local_mesh


class FinishedRows(NamedTuple):
    """Outputs of some sources of a batch."""

    numbers: np.ndarray  # of the sources, by row; -1: padding
    hypotheses: Hypotheses
    types: Types  # that its ids number


class BatchDecoder:
    """Searches with fixed models and settings. Raises ValueError for contradictory ones.

    `params` holds the tree under "params" of each of `models`; several are an ensemble, whose
    probability is their mean. A batch's sentences are split over the data axes of `mesh` (default:
    this process's devices). With `sampling`, the beam holds that many draws. With a `shortlist`,
    outputs use only its types for the batch's sources, and probabilities are relative to these.
    With `trees`, outputs are trees over these types, without a shortlist. `masks` are the caller's
    own rules on which types may come next. With `text_of`, which gives the text of tokens, no two
    outputs in an n-best list have the same text: if the beam finds fewer texts than `n_best`, the
    list is shorter.

    A batch with required or forbidden phrases is padded to the first of `constraint_sizes`, which
    go from small to large, that has room for them, and its program takes both kinds: so a server
    can compile all its programs beforehand (without prefixes, and with one list of forbidden
    phrases a line). What fits in none is an error. Without `constraint_sizes`, each batch has sizes
    of its own.
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
        masks: tuple[Mask, ...] = (),
        constraint_sizes: Sequence[ConstraintSizes] = (),
        text_of: TextOf | None = None,
    ) -> None:
        rules = rules_for(
            config,
            n_best=n_best,
            # As many again, since the likeliest outputs may be one text in several segmentations.
            # With groups, other groups' outputs are the spare ones.
            spare=n_best if text_of and n_best > 1 and config.diverse_groups == 1 else 0,
            suppress=suppress,
            sampling=sampling,
            trees=trees,
            masks=masks,
        )
        numbers = numbers_for(config, sampling or Sampling(), rules)
        mesh = local_mesh() if mesh is None else mesh
        config = with_batch_tokens(config, mesh.devices.flat[0].platform)
        self._programs = SearchPrograms.of(params, models, rules, numbers, mesh)
        self._every_type = np.arange(self._programs.target_types)

        max_length = min(model.config.max_length for model in models)
        self._limits = OutputLimits(config, max_length)
        self._shortlist = shortlist if trees is None else None
        self._schedule = schedule_for(self._programs, config, self._limits)
        self._seed = (sampling or Sampling()).seed
        self._constraint_sizes = constraint_sizes
        self._reader = OutputReader(rules, text_of)

    def decode(
        self, sources: Sequence[Source], *, continues: Continues | None = None
    ) -> list[list[Decoded]]:
        """Up to `n_best` outputs of each source, best first, in the sources' order.

        An output has at most `max_ratio` times the source's tokens plus `max_extra_tokens`, and at
        most `model.max_length`, end marks included. Sources with `phrases` need `continues`, which
        says which types continue a word, and plain beam search. Raises DecodingError, ValueError
        without `continues`, and LineError for a source that can have no output.
        """
        limits = self._checked(sources, continues)

        decoded: list[list[Decoded]] = [[] for _ in sources]
        with contextlib.closing(self._searched(sources, limits, continues)) as searched:
            for finished in searched:
                for row in np.flatnonzero(finished.numbers >= 0).tolist():
                    number = int(finished.numbers[row])
                    decoded[number] = self._reader.read(
                        finished.hypotheses,
                        row,
                        finished.types,
                        sources[number],
                        number=number,
                        limit=limits[number],
                    )
        return decoded

    def compile(
        self, lengths: Sequence[int], *, longest: int = 0, constrained: bool = False
    ) -> frozenset[tuple[int, int]]:
        """Compiles what `decode` may need for sources of these lengths, or for as many with some of
        up to `longest` tokens; returns the batches' shapes, (rows, source length). `constrained`
        ones have phrases in the first of the `constraint_sizes`. With a shortlist only its smallest
        size, with which few sentences are searched."""
        # With a shortlist this is its smallest search.
        programs, _ = self._programs_for([Source([EOS], (0, 0))])
        sizes = self._constraint_sizes[0] if constrained else None
        # For what rows share: a table of the right size.
        one_row = self._filler(programs).empty((1, 1), programs.target_types, sizes)
        programs = _with_shared(programs, one_row)
        return self._schedule.compile(
            programs, self._padding(programs, sizes), lengths, longest=longest
        )

    def _checked(self, sources: Sequence[Source], continues: Continues | None) -> list[int]:
        """The most tokens that each source's outputs may have."""
        if continues is not None:
            check_rules(self._programs.rules)
        elif any(source.phrases for source in sources):
            raise ValueError("sources with phrases need `continues`")
        limits = [self._limits.of(len(source.tokens)) for source in sources]
        for number, (source, limit) in enumerate(zip(sources, limits, strict=True)):
            check_source(
                number, source, limit, max_length=self._limits.max_length, continues=continues
            )
        filler = self._filler(self._programs)
        for number, source in enumerate(sources):
            filler.check(number, source)
        return limits

    def _searched(
        self, sources: Sequence[Source], limits: Sequence[int], continues: Continues | None
    ) -> Generator[FinishedRows]:
        """The outputs of all sources, as they finish."""
        planned = deque(self._schedule.plan([len(source.tokens) for source in sources]))
        with self._compiling(sources, planned):
            yield from self._searched_batches(planned, sources, limits, continues)

    def _compiling(
        self, sources: Sequence[Source], planned: Collection[PlannedBatch]
    ) -> contextlib.AbstractContextManager[None]:
        """While batches are searched, compiles the programs of later ones. Those with a shortlist,
        prefixes or phrases have programs of their own, which aren't known yet."""
        is_plain = not any(
            source.prefix or source.forbidden or source.phrases for source in sources
        )
        if self._shortlist is not None or not is_plain:
            return contextlib.nullcontext()
        padding = self._padding(self._programs, None)
        return self._schedule.compiling(self._programs, padding, planned)

    def _searched_batches(
        self,
        planned: deque[PlannedBatch],
        sources: Sequence[Source],
        limits: Sequence[int],
        continues: Continues | None,
    ) -> Generator[FinishedRows]:
        """The outputs of these batches, as they finish."""
        while planned:
            batch = planned.popleft()
            own_sources = [sources[number] for number in batch.numbers]
            own_limits = [limits[number] for number in batch.numbers]
            programs, types = self._programs_for(own_sources)
            try:
                filled = self._filler(programs).fill(
                    own_sources, own_limits, types, batch.shape, continues
                )
            except TooManyPhrases as error:
                planned.extendleft(reversed(_bisected(batch, error)))
                continue

            searched = self._schedule.search(_with_shared(programs, filled), filled.arrays, batch)
            with contextlib.closing(searched):
                for finished_numbers, hypotheses in searched:
                    yield FinishedRows(finished_numbers, hypotheses, types)

    def _programs_for(self, sources: Sequence[Source]) -> tuple[SearchPrograms, Types]:
        """The programs for a batch of sources, and the types that their ids number."""
        if self._shortlist is not None:
            needed = [source.prefix for source in sources]
            needed += [phrase.tokens for source in sources for phrase in source.phrases]
            needed += [source.copied for source in sources]
            tokens = [source.tokens for source in sources]
            short = shortened(self._programs, self._shortlist, tokens, needed)
            if short is not None:
                return short
        return self._programs, self._every_type

    def _filler(self, programs: SearchPrograms) -> BatchFiller:
        return BatchFiller(programs.rules, self._seed, self._constraint_sizes)

    def _padding(self, programs: SearchPrograms, sizes: ConstraintSizes | None) -> Padding:
        """Makes arrays of an empty batch, with constraints if these have `sizes`."""
        filler = self._filler(programs)

        def padding(rows: int, length: int) -> BatchArrays:
            return filler.empty((rows, length), programs.target_types, sizes).arrays

        return padding


def _with_shared(programs: SearchPrograms, filled: FilledBatch) -> SearchPrograms:
    """The programs with what all rows of a batch share."""
    if all(shared is None for shared in filled.mask_shared) and filled.continues is None:
        return programs
    changes: dict[str, Any] = {"mask_shared": filled.mask_shared}
    if filled.continues is not None:
        changes["continues"] = filled.continues
    return programs.with_numbers(**changes)


def _bisected(batch: PlannedBatch, error: TooManyPhrases) -> list[PlannedBatch]:
    """A batch as two, whose forbidden phrases need smaller tables. Raises LineError for a single
    source."""
    if len(batch.numbers) == 1:
        raise LineError(batch.numbers[0], str(error)) from None
    half = len(batch.numbers) // 2
    return [batch.of(batch.numbers[:half]), batch.of(batch.numbers[half:])]
