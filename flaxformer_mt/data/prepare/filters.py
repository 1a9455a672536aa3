"""Which pairs a store keeps. Filters are pure: a mask over a chunk of pairs each.

Lengths are in tokens and count the end mark; scripts are counted in letters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Integer

from flaxformer_mt.config.schema import FilterConfig
from flaxformer_mt.data.prepare import scripts

TOO_LONG = "too long"
LENGTH_RATIO = "length ratio"
IDENTICAL = "identical sides"
SCRIPT = "another script"
DUPLICATE = "duplicate"
UNKNOWN_WORD = "unknown target word"


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
    with np.errstate(over="ignore"):
        return longer > config.max_ratio * np.minimum(src_lengths, tgt_lengths)


def identical(
    src: Sequence[bytes], tgt: Sequence[bytes], config: FilterConfig
) -> Bool[np.ndarray, " pairs"]:
    """Pairs whose sides are the same text, blanks at the ends apart (if `identical` is set)."""
    if not config.identical:
        return np.zeros(len(src), bool)
    same = (a.strip() == b.strip() for a, b in zip(src, tgt, strict=True))
    return np.fromiter(same, bool, len(src))


def other_script(
    sentences: Sequence[bytes], script: str, config: FilterConfig
) -> Bool[np.ndarray, " sentences"]:
    """Sentences of whose letters less than the share `config.script` is in `script` (0: none).

    A sentence without letters, such as a date in digits, is in every script.
    """
    if config.script == 0 or not sentences:
        return np.zeros(len(sentences), bool)
    letters, own = scripts.count_letters(sentences, script)
    return own < config.script * letters
