"""The largest batch that fits: a search that compiles a handful of programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

# Of the memory that the compiler grants; what is left is less than a step of the search is worth.
_TARGET = 0.97
_ENOUGH = 0.9
_COMPILES = 8
_LEAP = 16  # times the rows that fit: memory may grow faster than the first two say


@dataclasses.dataclass(frozen=True)
class Need:
    """Memory that a batch of `rows` rows takes on each device, or would take."""

    rows: int
    needed: int
    available: int
    fits: bool


@dataclasses.dataclass(frozen=True)
class Fit:
    """`largest` is None where not even the smallest batch fits; `tried` is every compilation."""

    largest: Need | None
    tried: tuple[Need, ...]


def search(measure: Callable[[int], Need], *, start: int, multiple: int) -> Fit:
    """The most rows, a multiple of `multiple`, for which `measure` says that they fit.

    Each guess is read off a line through two measurements: one on either side of the limit as soon
    as there are such. Ends within a tenth of the memory, or after a few compilations.
    """
    tried: dict[int, Need] = {}

    def look(rows: int) -> Need:
        rows = max(rows // multiple, 1) * multiple
        if rows not in tried:
            tried[rows] = measure(rows)
        return tried[rows]

    def best() -> Need | None:
        return max((n for n in tried.values() if n.fits), key=lambda n: n.rows, default=None)

    first = look(start)
    look(2 * start if first.fits else start // 2)
    while len(tried) < _COMPILES:
        fits = best()
        fails = min((n for n in tried.values() if not n.fits), key=lambda n: n.rows, default=None)
        if fits is not None and fails is not None:
            if fits.needed >= _ENOUGH * fits.available or fails.rows - fits.rows <= multiple:
                break
            # The ends of the bracket are known: a guess close to one of them would teach little.
            gap = fails.rows - fits.rows
            guess = min(max(_crossing(fits, fails), fits.rows + gap // 8), fails.rows - gap // 8)
            guess = min(max(guess, fits.rows + multiple), fails.rows - multiple)
        elif fits is not None:
            if fits.needed >= _ENOUGH * fits.available:
                break
            smaller = min(tried.values(), key=lambda n: n.rows)
            guess = min(max(_crossing(smaller, fits), 2 * fits.rows), _LEAP * fits.rows)
        else:
            assert fails is not None
            if fails.rows == multiple:
                break
            larger = max(tried.values(), key=lambda n: n.rows)
            guess = min(_crossing(fails, larger), fails.rows // 2)
        look(guess)
    return Fit(best(), tuple(tried.values()))


def _crossing(a: Need, b: Need) -> int:
    """Rows at which the line through two measurements reaches the target; 0 below the first row."""
    if a.needed == b.needed:
        return 2 * max(a.rows, b.rows)
    slope = (b.needed - a.needed) / (b.rows - a.rows)
    return max(int(a.rows + (_TARGET * a.available - a.needed) / slope), 0)
