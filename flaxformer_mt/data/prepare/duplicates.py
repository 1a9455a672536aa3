"""Which pairs were seen before, over corpora of tens of millions, in little memory.

A pair counts by a hash of 64 bits. Two different pairs among n have the same one with a probability
of about n²/2^65: for 41 million, one chance in 22,000 that a single pair is taken for another's
duplicate and lost. The table takes 8 bytes a slot and is at most two thirds full: 512 MiB for
41 million pairs, and half as much again for the moment in which it grows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, UInt64


def hashes(pairs: Iterable[tuple[bytes, bytes]]) -> UInt64[np.ndarray, " pairs"]:
    """A hash for each pair of UTF-8 texts, blanks at their ends apart; the same on any machine."""
    digests = (
        # No sound text holds a zero byte, so that the border between the sides is certain.
        hashlib.blake2b(src.strip() + b"\0" + tgt.strip(), digest_size=8).digest()
        for src, tgt in pairs
    )
    return np.frombuffer(b"".join(digests), "<u8")


class Seen:
    """A set of 64-bit hashes: open addressing, many at a time."""

    def __init__(self) -> None:
        self._table = np.zeros(1 << 12, np.uint64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._table.nbytes

    def add(self, keys: UInt64[np.ndarray, " pairs"]) -> Bool[np.ndarray, " pairs"]:
        """Adds the hashes; True where one is there for the first time."""
        first_time = np.zeros(len(keys), bool)
        # 0 marks a free slot; another key in its place costs no more than one more collision.
        unique, first = np.unique(np.maximum(keys, np.uint64(1)), return_index=True)
        while (self._count + len(unique)) * 3 > len(self._table) * 2:
            self._grow()
        first_time[first] = self._insert(unique)
        self._count += int(first_time.sum())
        return first_time

    def _grow(self) -> None:
        held = self._table
        self._table = np.zeros(2 * len(held), np.uint64)
        for part in np.array_split(held, max(1, len(held) >> 16)):
            self._insert(part[part != 0])

    def _insert(self, keys: UInt64[np.ndarray, " keys"]) -> Bool[np.ndarray, " keys"]:
        """Puts distinct keys into the table; True where one was not there."""
        new = np.zeros(len(keys), bool)
        mask = np.uint64(len(self._table) - 1)
        waiting, slots = np.arange(len(keys)), keys & mask
        while len(waiting):
            wanted = keys[waiting]
            free = self._table[slots] == 0
            # Of several keys that want one free slot the last one gets it; the others go on.
            self._table[slots[free]] = wanted[free]
            there = self._table[slots] == wanted
            new[waiting[free & there]] = True
            waiting, slots = waiting[~there], (slots[~there] + np.uint64(1)) & mask
        return new
