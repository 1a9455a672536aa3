"""Lexical shortlists (Jean et al., 2015, section 3.3): target types that a source may need.

A softmax over a few thousand of 32,000 types saves a decoder two fifths of its products. The table
is IBM model 1's (Brown et al., 1993), learned from the run's training pairs.
"""

import dataclasses
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float64, Int32, Int64

from flaxformer_mt.data.store import TokenPairs, Tokens, runs
from flaxformer_mt.data.vocabulary import BOS, EOS, PAD, UNK
from flaxformer_mt.errors import UserError

BEST = 64  # target types of each source type
FREQUENT = 256  # types that every shortlist has
PASSES = 5
CELLS = 40_000_000  # pairs of tokens, 40 bytes each; larger corpora are sampled
_LONGEST = 64  # tokens of a side; longer pairs teach little
_MARKS = (PAD, BOS, EOS, UNK)


class ShortlistError(UserError):
    """A shortlist that can't be used."""


@dataclasses.dataclass(frozen=True)
class Shortlist:
    """The likeliest target types of each source type, and all types by frequency."""

    best: Int32[np.ndarray, "src_types best"]
    ranked: Int32[np.ndarray, " tgt_types"]  # the most frequent first
    vocabulary: str  # digest of the vocabularies whose ids these are

    def types(self, sources: Iterable[Sequence[int]]) -> Int64[np.ndarray, " types"]:
        """The target types for a batch's sources: marks, the most frequent types, then all source
        types' first choices, second choices and so on."""
        known = np.unique(np.concatenate([np.asarray(source) for source in sources]))
        return distinct(_MARKS, self.ranked[:FREQUENT], self.best[known].T.ravel())

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.best.tobytes() + self.ranked.tobytes()).hexdigest()[:16]

    def to_bytes(self) -> bytes:
        """A compressed `.npz`."""
        file = io.BytesIO()
        np.savez_compressed(file, **dataclasses.asdict(self))
        return file.getvalue()

    @classmethod
    def read(
        cls,
        content: bytes,
        place: object,
        *,
        vocabulary: str,
        sizes: tuple[int, int] | None = None,
    ) -> "Shortlist":
        """Reads the bytes of `to_bytes`. Raises ShortlistError, also for another vocabulary.

        With `sizes`, those of both vocabularies, it must have as many types.
        """
        try:
            with np.load(io.BytesIO(content)) as file:
                shortlist = cls(file["best"], file["ranked"], str(file["vocabulary"]))
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            raise ShortlistError(f"{place}: is damaged ({error}); delete it") from error
        if shortlist.vocabulary != vocabulary:
            raise ShortlistError(f"{place}: learned with another vocabulary; delete it")
        if problem := shortlist._problem(sizes):
            raise ShortlistError(f"{place}: is damaged ({problem}); delete it")
        return shortlist

    def _problem(self, sizes: tuple[int, int] | None) -> str:
        """The fault of the arrays; empty if there is none."""
        best, ranked = self.best, self.ranked
        if best.ndim != 2 or ranked.ndim != 1 or not best.size:
            return f"arrays of shapes {best.shape} and {ranked.shape}"
        if sizes not in (None, (len(best), len(ranked))):
            return f"{len(best)} and {len(ranked)} types, but the vocabularies have {sizes}"
        if best.dtype.kind not in "iu" or ranked.dtype.kind not in "iu":
            return f"arrays of {best.dtype} and {ranked.dtype}"
        if not np.array_equal(np.sort(ranked), np.arange(len(ranked))):
            return "not every type is ranked once"
        if best.min() < 0 or best.max() >= len(ranked):
            return "ids of types that do not exist"
        return ""


def distinct(*types: Sequence[int] | np.ndarray) -> Int64[np.ndarray, " types"]:
    """All types, each where it comes first."""
    every = np.concatenate(types).astype(np.int64)
    return every[np.sort(np.unique(every, return_index=True)[1])]


def learn(pairs: TokenPairs, *, src_types: int, tgt_types: int, vocabulary: str) -> Shortlist:
    """Model 1 by expectation maximisation over the pairs, or an even sample of many.

    End marks act as the empty word. An unseen source type has the type of its own id, its copy in a
    shared vocabulary.
    """
    src, tgt = _sample(pairs)
    keys, shares = _translation_shares(src, tgt, src_types, tgt_types)
    source = keys // tgt_types

    own_ids = np.minimum(np.arange(src_types), tgt_types - 1)
    best = np.repeat(own_ids[:, None], BEST, axis=1)  # [src types, BEST]
    order = np.lexsort((-shares, source))
    firsts = np.searchsorted(source, np.arange(src_types + 1))
    place = np.arange(len(keys)) - firsts[source]  # among those of its source, which are sorted
    is_best = place < BEST
    best[source[is_best], place[is_best]] = (keys % tgt_types)[order[is_best]]
    ranked = np.argsort(-np.bincount(tgt.flat, minlength=tgt_types), kind="stable")
    return Shortlist(best.astype(np.int32), ranked.astype(np.int32), vocabulary)


def _translation_shares(
    src: Tokens, tgt: Tokens, src_types: int, tgt_types: int
) -> tuple[Int64[np.ndarray, " keys"], Float64[np.ndarray, " keys"]]:
    """p(target | source) of all types that occur together; a key is source * tgt_types + target."""
    src_lengths, tgt_lengths = (np.diff(side.offsets) for side in (src, tgt))
    # Cells: each target token with each source token of its pair.
    pair = np.repeat(np.arange(len(tgt_lengths)), tgt_lengths)  # of each target token
    width = src_lengths[pair]
    tgt_token = np.repeat(np.arange(len(tgt.flat), dtype=np.int32), width)  # of each cell
    keys = src.flat[runs(src.offsets[:-1][pair], width)].astype(np.int64)
    keys *= tgt_types
    keys += tgt.flat[tgt_token]
    keys, key_of_cell = np.unique(keys, return_inverse=True)
    key_of_cell = key_of_cell.astype(np.int32)

    source = keys // tgt_types
    shares = np.ones(len(keys))
    for _ in range(PASSES):
        weight = shares[key_of_cell]
        weight /= np.bincount(tgt_token, weight, minlength=len(tgt.flat))[tgt_token]
        counts = np.bincount(key_of_cell, weight, minlength=len(keys))
        shares = counts / np.bincount(source, counts, minlength=src_types)[source]
    return keys, shares


def _sample(pairs: TokenPairs) -> tuple[Tokens, Tokens]:
    """An even sample of at most `CELLS` cells, without long pairs."""
    chosen = np.linspace(0, len(pairs) - 1, min(len(pairs), CELLS // 16)).astype(np.int64)
    lengths = [side.lengths(chosen).astype(np.int64) for side in pairs.sides.values()]
    fits = np.maximum(*lengths) <= _LONGEST
    order = np.random.default_rng(0).permutation(np.flatnonzero(fits))
    order = order[np.cumsum((lengths[0] * lengths[1])[order]) <= CELLS]
    chosen = np.sort(chosen[order])
    src, tgt = (
        Tokens(side.gather(chosen), np.cumsum([0, *side.lengths(chosen)]))
        for side in pairs.sides.values()
    )
    return src, tgt
