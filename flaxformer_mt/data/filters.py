"""Which pairs a store keeps: by length and by the ratio of lengths, in tokens."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Integer

from flaxformer_mt.config.schema import FilterConfig

TOO_LONG = "too long"
LENGTH_RATIO = "length ratio"


def too_long(
    src_lengths: Integer[np.ndarray, " pairs"],
    tgt_lengths: Integer[np.ndarray, " pairs"],
    config: FilterConfig,
) -> Bool[np.ndarray, " pairs"]:
    """Pairs with a side of more than `max_length` tokens, the end mark counted."""
    return np.maximum(src_lengths, tgt_lengths) > config.max_length


def uneven(
    src_lengths: Integer[np.ndarray, " pairs"],
    tgt_lengths: Integer[np.ndarray, " pairs"],
    config: FilterConfig,
) -> Bool[np.ndarray, " pairs"]:
    """Pairs one of whose sides is more than `max_ratio` times as long as the other (0: none)."""
    if config.max_ratio == 0:
        return np.zeros(len(src_lengths), bool)
    longer = np.maximum(src_lengths, tgt_lengths)
    return longer > config.max_ratio * np.minimum(src_lengths, tgt_lengths)
