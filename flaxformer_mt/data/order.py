"""Which pairs an epoch takes and in what order: a pure function of (seed, epoch), never stored.

A keyed permutation is computed number by number, for corpora of any size. An epoch is cut into
windows of equal size; a batch comes from one window.
"""

import dataclasses
import math
from fractions import Fraction

import numpy as np
from jaxtyping import Int64, UInt64

# Four half-rounds suffice for pseudo-random round functions (Luby and Rackoff 1988); ours are a
# hash.
_HALF_ROUNDS = 8


@dataclasses.dataclass(frozen=True, order=True)
class Position:
    """Batch `index` of `window` of `epoch`, all from 0, for any number of machines."""

    epoch: int = 0
    window: int = 0
    index: int = 0


@dataclasses.dataclass(frozen=True)
class Part:
    """One corpus within a store: its pairs are `[first, first + size)`."""

    name: str
    first: int
    size: int
    weight: float = 0.0  # share in a mixture relative to other parts; 0: no mixture


@dataclasses.dataclass(frozen=True)
class Order:
    """The pairs of every window of every epoch.

    Without weights an epoch is every pair exactly once. With weights it is `epoch_pairs` draws,
    each part's share to within one pair at any time; a part continues where the last epoch left it,
    and gives each pair once per pass.
    """

    parts: tuple[Part, ...]
    seed: int
    window: int  # pairs a window should have; an epoch's windows differ by at most one pair
    epoch_pairs: int = 0  # mixture: draws that count as one epoch; 0 for as many as there are pairs

    @property
    def mixed(self) -> bool:
        return any(part.weight for part in self.parts)

    @property
    def pairs_per_epoch(self) -> int:
        total = sum(part.size for part in self.parts)
        return (self.epoch_pairs or total) if self.mixed else total

    @property
    def windows(self) -> int:
        return max(1, round(self.pairs_per_epoch / self.window))

    def pairs(self, epoch: int, window: int) -> Int64[np.ndarray, " pairs"]:
        """The pairs of a window, part by part; plans shuffle them again."""
        if not self.mixed:
            start, stop = (self._bound(window + side) for side in (0, 1))
            whole = Part("", self.parts[0].first, self.pairs_per_epoch)
            return self._stream(whole, 0, epoch, start, stop)
        start, stop = (epoch * self.pairs_per_epoch + self._bound(window + side) for side in (0, 1))
        drawn = []
        total = sum(Fraction(part.weight) for part in self.parts)
        for number, part in enumerate(self.parts):
            share = Fraction(part.weight) / total
            at, end = (math.floor(share * bound) for bound in (start, stop))
            while at < end:
                turn, within = divmod(at, part.size)
                until = min(part.size, within + end - at)
                drawn.append(self._stream(part, number + 1, turn, within, until))
                at += until - within
        return np.concatenate([np.zeros(0, np.int64), *drawn])

    def _bound(self, window: int) -> int:
        return self.pairs_per_epoch * window // self.windows

    def _stream(
        self, part: Part, number: int, turn: int, start: int, stop: int
    ) -> Int64[np.ndarray, " pairs"]:
        """Places `start` to `stop` of the part's pass `turn`."""
        if start == 0 and stop == part.size:
            # The plan's own shuffle is enough.
            return part.first + np.arange(part.size)
        keys = np.random.Philox(np.random.SeedSequence((self.seed, number, turn), spawn_key=(1,)))
        at = np.arange(start, stop, dtype=np.uint64)
        return part.first + permute(at, part.size, keys.random_raw(_HALF_ROUNDS)).astype(np.int64)


def permute(
    at: UInt64[np.ndarray, " items"], size: int, keys: UInt64[np.ndarray, " half_rounds"]
) -> UInt64[np.ndarray, " items"]:
    """Where a keyed permutation of `range(size)` sends each number of `at`.

    A Feistel network on pairs (number // b, number % b) (Black and Rogaway 2002, "Ciphers with
    arbitrary finite domains"). A number that lands beyond `size` is sent on until it lands inside.
    """
    columns = np.uint64(math.isqrt(max(size - 1, 0)) + 1)
    rows = np.uint64(-(-size // int(columns)))
    result = at.copy()
    todo = np.arange(len(at))
    while len(todo):
        high, low = np.divmod(result[todo], columns)
        for number, key in enumerate(keys):
            if number % 2:
                high = (high + hashed(low ^ key)) % rows
            else:
                low = (low + hashed(high ^ key)) % columns
        moved = high * columns + low
        result[todo] = moved
        todo = todo[moved >= size]
    return result


def hashed(value: UInt64[np.ndarray, " items"]) -> UInt64[np.ndarray, " items"]:
    """The upper 32 bits of `mixed`."""
    return mixed(value) >> np.uint64(32)


def mixed(value: UInt64[np.ndarray, " items"]) -> UInt64[np.ndarray, " items"]:
    """MurmurHash3's finaliser (Appleby, public domain), a bijection of 64-bit numbers."""
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    value = (value ^ (value >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return value ^ (value >> np.uint64(33))
