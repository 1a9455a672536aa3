"""A search among few target types: those that a shortlist has for a batch's sources."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from flaxformer_mt.data.shortlist import Shortlist, distinct
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.decoding.rounding import one_of_few, power_of_two_at_least
from flaxformer_mt.decoding.run.programs import SearchPrograms
from flaxformer_mt.decoding.source import Types
from flaxformer_mt.model.embedding import of_types

LEAST_TYPES = 1024  # target types of the smallest search with a shortlist


def shortened(
    programs: SearchPrograms,
    shortlist: Shortlist,
    sources: Sequence[Sequence[int]],
    needed: Sequence[Sequence[int]],
) -> tuple[SearchPrograms, Types] | None:
    """The programs with the shortlist's target types for these sources, and the type that each of
    their ids stands for; None if there are too few types to leave any out.

    Sizes are rounded to few by adding or dropping types, since each is compiled; those of `needed`
    stay.
    """
    suppress = programs.rules.suppress
    never = np.setdiff1d(suppress, (UNK,))
    must = distinct((PAD, BOS, EOS, UNK), *needed)
    likely = distinct(must, shortlist.types(sources))
    most = max(len(likely) * 2 // 3, len(must), LEAST_TYPES)
    size = one_of_few(most, LEAST_TYPES) if programs.is_small else power_of_two_at_least(most)
    types = distinct(likely, shortlist.ranked)
    types = np.sort(types[~np.isin(types, never)][:size])
    if len(types) < size:
        return None

    rules = dataclasses.replace(programs.rules, suppress=(UNK,) if UNK in suppress else ())
    params = tuple(
        of_types(tree, model.config, types)
        for tree, model in zip(programs.params, programs.models, strict=True)
    )
    models = tuple(model.of_types(size) for model in programs.models)
    return dataclasses.replace(programs, params=params, models=models, rules=rules), types
