"""The order of an epoch's pairs: a pure function of (seed, epoch), never stored.

A keyed permutation is computed number by number, for corpora of any size. An epoch is cut into
windows of equal size; a batch comes from one window.
"""

import dataclasses
import math
from fractions import Fraction

import numpy as np
from jaxtyping import Int64, UInt64

from flaxformer_mt.mixing import MURMUR_64

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
class StoredCorpus:
    """One corpus within a store: its pairs are `[first, first + size)`."""

    name: str
    first: int
    size: int
    weight: float = 0.0  # share in a mixture relative to other corpora; 0: no mixture


@dataclasses.dataclass(frozen=True)
class Order:
    """The pairs of every window of every epoch.

    Without weights an epoch is every pair exactly once. With weights it is `epoch_pairs` draws,
    each corpus's share to within one pair at any time; a corpus continues where the last epoch left
    it, and gives each pair once per pass.
    """

    corpora: tuple[StoredCorpus, ...]
    seed: int
    window: int  # pairs a window should have; an epoch's windows differ by at most one pair
    epoch_pairs: int = 0  # mixture: draws that count as one epoch; 0 for as many as there are pairs

    @property
    def is_mixture(self) -> bool:
        return any(corpus.weight for corpus in self.corpora)

    @property
    def pairs_per_epoch(self) -> int:
        total = sum(corpus.size for corpus in self.corpora)
        return (self.epoch_pairs or total) if self.is_mixture else total

    @property
    def windows(self) -> int:
        return max(1, round(self.pairs_per_epoch / self.window))

    def pairs(self, epoch: int, window: int) -> Int64[np.ndarray, " pairs"]:
        """The pairs of a window, corpus by corpus; plans shuffle them again."""
        start, stop = self._bound(window), self._bound(window + 1)
        if not self.is_mixture:
            all_pairs = StoredCorpus("", self.corpora[0].first, self.pairs_per_epoch)
            return self._stream(all_pairs, 0, epoch, start, stop)

        drawn_before = epoch * self.pairs_per_epoch
        start, stop = drawn_before + start, drawn_before + stop
        drawn = []
        total = sum(Fraction(corpus.weight) for corpus in self.corpora)
        for number, corpus in enumerate(self.corpora, start=1):
            share = Fraction(corpus.weight) / total
            # Places in the corpus's endless stream of passes.
            place, end = (math.floor(share * bound) for bound in (start, stop))
            while place < end:
                turn, first = divmod(place, corpus.size)
                last = min(corpus.size, first + end - place)
                drawn.append(self._stream(corpus, number, turn, first, last))
                place += last - first
        return np.concatenate([np.zeros(0, np.int64), *drawn])

    def _bound(self, window: int) -> int:
        return self.pairs_per_epoch * window // self.windows

    def _stream(
        self, corpus: StoredCorpus, number: int, turn: int, start: int, stop: int
    ) -> Int64[np.ndarray, " pairs"]:
        """Places `start` to `stop` of the corpus's pass `turn`."""
        if start == 0 and stop == corpus.size:
            # The plan's own shuffle is enough.
            return corpus.first + np.arange(corpus.size)
        random = np.random.Philox(np.random.SeedSequence((self.seed, number, turn), spawn_key=(1,)))
        keys = random.random_raw(_HALF_ROUNDS)
        places = np.arange(start, stop, dtype=np.uint64)
        return corpus.first + permute(places, corpus.size, keys).astype(np.int64)


def permute(
    numbers: UInt64[np.ndarray, " numbers"], size: int, keys: UInt64[np.ndarray, " half_rounds"]
) -> UInt64[np.ndarray, " numbers"]:
    """Where a keyed permutation of `range(size)` sends each of the numbers.

    A Feistel network on pairs (number // b, number % b) (Black and Rogaway 2002, "Ciphers with
    arbitrary finite domains"). A number that lands beyond `size` is sent on until it lands inside.
    """
    columns = np.uint64(math.isqrt(max(size - 1, 0)) + 1)
    rows = np.uint64(-(-size // int(columns)))
    permuted = numbers.copy()
    outside = np.arange(len(numbers))
    while len(outside):
        high, low = np.divmod(permuted[outside], columns)
        for half_round, key in enumerate(keys):
            if half_round % 2:
                high = (high + hashed(low ^ key)) % rows
            else:
                low = (low + hashed(high ^ key)) % columns
        moved = high * columns + low
        permuted[outside] = moved
        outside = outside[moved >= size]
    return permuted


def hashed(numbers: UInt64[np.ndarray, " items"]) -> UInt64[np.ndarray, " items"]:
    """The upper 32 bits of the mixed numbers."""
    return MURMUR_64.mixed(numbers) >> np.uint64(32)
