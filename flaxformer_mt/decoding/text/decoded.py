"""Outputs of the search, before they are text."""

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

TextOf = Callable[[tuple[int, ...]], Hashable]
"""What makes two outputs the same."""
Entry = TypeVar("Entry")
NO_NUMBERS = "not finite: its parameters are damaged or training diverged; use another checkpoint"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoded:
    """One output of the search, without its end mark, and its scores."""

    tokens: tuple[int, ...]
    log_prob: float  # natural logarithm, the end mark's included
    score: float  # log_prob / length penalty + coverage penalty
    at_limit: bool  # no room for another token (or bracket): the limit may have cut it short


def distinct(entries: Iterable[Entry], key: Callable[[Entry], Hashable]) -> Iterator[Entry]:
    """The entries, of those with the same key only the first."""
    seen = set()
    for entry in entries:
        entry_key = key(entry)
        if entry_key not in seen:
            seen.add(entry_key)
            yield entry
