"""Hashes of whole numbers, element by element, for arrays of NumPy and of JAX."""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Mixer:
    """Spreads each bit of a number over all of its bits; no two numbers give the same."""

    word: type[np.uint32] | type[np.uint64]  # of the arrays, and of what is computed
    shifts: tuple[int, int, int]
    multipliers: tuple[int, int]

    def mixed(self, numbers: Any) -> Any:
        """`numbers`, an array of `word`s on the host or a device, each mixed."""
        first, second, third = map(self.word, self.shifts)
        multiplier, second_multiplier = map(self.word, self.multipliers)
        numbers = (numbers ^ (numbers >> first)) * multiplier
        numbers = (numbers ^ (numbers >> second)) * second_multiplier
        return numbers ^ (numbers >> third)


# The finalisers of MurmurHash3 (Appleby, public domain).
MURMUR_32 = Mixer(np.uint32, (16, 13, 16), (0x85EBCA6B, 0xC2B2AE35))
MURMUR_64 = Mixer(np.uint64, (33, 33, 33), (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53))
