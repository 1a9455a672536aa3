"""A source of the search, with what its outputs must and must not have."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from flaxformer_mt.decoding.constraints.forbidden import Forbidden
from flaxformer_mt.decoding.constraints.phrases import Phrase

Types = Int[np.ndarray, " kept"]
"""The target types that a search's ids number: all of the vocabulary, or a shortlist's."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Token ids (pieces + EOS), and what their outputs must be."""

    tokens: Sequence[int]
    number: tuple[int, int]  # of the line and its piece: draws depend on it
    prefix: Sequence[int] = ()  # what outputs begin with
    words: int = 0  # leaves of a tree, unless these are the source's own tokens
    forbidden: Sequence[Forbidden] = ()  # automata that read outputs
    phrases: Sequence[Phrase] = ()  # that outputs must have
    copied: Sequence[int] = ()  # symbols (target types) that outputs have as often as this list
