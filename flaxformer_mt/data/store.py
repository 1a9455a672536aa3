"""The token store: every pair's token ids in flat memory-mapped files, with digests.

A split is a list of shards, each four files: `SPLIT-NNNNN.SIDE.tokens`, sentences end to end with
end marks, and `SPLIT-NNNNN.SIDE.offsets`, where each begins (int64, one more than sentences). If
training pairs have weights, `SPLIT-NNNNN.tgt.weights` has them (float32).
`store.json` records a split's corpora, and sizes and sha256 digests.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Float32, Int32, Int64, Integer

from flaxformer_mt.data.order import StoredCorpus
from flaxformer_mt.errors import UserError
from flaxformer_mt.files.reading import json_errors_as, parse_json, read_file, regular_size

FORMAT = 2
DTYPES = ("<u2", "<u4")  # of ids, in bytes as few as the vocabulary allows
INDEX = "store.json"
SPLITS = ("train", "valid")
SIDES = ("src", "tgt")
WEIGHTS = "weights"
SHARD_TOKENS = 1 << 27  # a shard is closed when a side has this many tokens: 256 MB of 16-bit ids

_VERIFIED = 64 << 20  # bytes of a larger file that are verified when a store is opened
_BLOCK = 1 << 20
_PAIRS_AT_A_TIME = 1 << 20


class StoreError(UserError):
    """A token store that is missing, incomplete, damaged or another one."""


@dataclasses.dataclass(frozen=True)
class Tokens:
    """One side of a shard: flat ids, the offsets between sentences, and perhaps their weights."""

    flat: Integer[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " pairs_and_one"]
    weights: Float32[np.ndarray, " pairs"] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles mapped arrays by their files."""
        arrays = (self.flat, self.offsets, self.weights)
        return _tokens_of, tuple(array if array is None else _portable(array) for array in arrays)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, indices: Integer[np.ndarray, " items"]) -> Int32[np.ndarray, " items"]:
        return (self.offsets[indices + 1] - self.offsets[indices]).astype(np.int32)

    def gather(self, indices: Integer[np.ndarray, " items"]) -> Int32[np.ndarray, " tokens"]:
        """The sentences at `indices`, end to end."""
        starts = self.offsets[indices]
        return self.flat[runs(starts, self.offsets[indices + 1] - starts)].astype(np.int32)


_Portable = np.ndarray | tuple[str, str]  # an array, or a mapped one's file and type


def _portable(array: np.ndarray) -> _Portable:
    if isinstance(array, np.memmap) and array.filename is not None:
        return str(array.filename), array.dtype.str
    return array


def _tokens_of(flat: _Portable, offsets: _Portable, weights: _Portable | None) -> Tokens:
    return Tokens(
        _array_of(flat), _array_of(offsets), None if weights is None else _array_of(weights)
    )


def _array_of(portable: _Portable) -> np.ndarray:
    return np.memmap(*portable, mode="r") if isinstance(portable, tuple) else portable


class StoredSentences:
    """One side of a split: its shards as one sequence."""

    def __init__(self, shards: Sequence[Tokens]) -> None:
        self.shards = tuple(shards)
        self.firsts = np.cumsum([0, *map(len, shards)])

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def lengths(self, indices: Integer[np.ndarray, " items"]) -> Int32[np.ndarray, " items"]:
        """Lengths with the end mark."""
        if len(self.shards) == 1:
            return self.shards[0].lengths(indices)
        lengths = np.empty(len(indices), np.int32)
        for shard, places, local in self._by_shard(indices):
            lengths[places] = shard.lengths(local)
        return lengths

    def gather(self, indices: Integer[np.ndarray, " items"]) -> Int32[np.ndarray, " tokens"]:
        """The sentences at `indices`, end to end."""
        if len(self.shards) == 1:
            return self.shards[0].gather(indices)
        lengths = self.lengths(indices)
        ends = np.cumsum(lengths, dtype=np.int64)
        tokens = np.empty(int(ends[-1]) if len(ends) else 0, np.int32)
        for shard, places, local in self._by_shard(indices):
            starts = ends[places] - lengths[places]
            tokens[runs(starts, lengths[places])] = shard.gather(local)
        return tokens

    @property
    def have_weights(self) -> bool:
        return any(shard.weights is not None for shard in self.shards)

    def weights(
        self, indices: Integer[np.ndarray, " items"]
    ) -> Float32[np.ndarray, " items"] | None:
        """The weights of the sentences' pairs, if they have any."""
        if not self.have_weights:
            return None
        weights = np.empty(len(indices), np.float32)
        for shard, places, local in self._by_shard(indices):
            weights[places] = cast(np.ndarray, shard.weights)[local]
        return weights

    def all_lengths(
        self, first: int = 0, stop: int | None = None
    ) -> Iterator[Int32[np.ndarray, " some"]]:
        """The lengths of sentences `first` to `stop` in order, a piece at a time."""
        stop = len(self) if stop is None else stop
        for shard, begin in zip(self.shards, self.firsts, strict=False):
            local = range(max(first - begin, 0), min(stop - begin, len(shard)), _PAIRS_AT_A_TIME)
            for start in local:
                end = min(start + _PAIRS_AT_A_TIME, local.stop)
                yield np.diff(shard.offsets[start : end + 1]).astype(np.int32)

    def _by_shard(
        self, indices: Integer[np.ndarray, " items"]
    ) -> Iterator[tuple[Tokens, Int64[np.ndarray, " some"], Integer[np.ndarray, " some"]]]:
        """Each shard concerned, the places of its items among the `indices`, and in the shard."""
        shard_of = np.searchsorted(self.firsts, indices, "right") - 1
        for number in np.unique(shard_of):
            places = np.flatnonzero(shard_of == number)
            yield self.shards[number], places, indices[places] - self.firsts[number]


_Lengths = Int32[np.ndarray, " pairs"]
_Kinds = Int64[np.ndarray, " kinds"]
LengthCounts = tuple[_Kinds, _Kinds, _Kinds]


class TokenPairs:
    """A split's pairs: token ids with the end mark, and their lengths, which count it."""

    def __init__(
        self,
        src: Sequence[Tokens],
        tgt: Sequence[Tokens],
        corpora: Sequence[StoredCorpus] = (),
        *,
        digest: str = "",
    ) -> None:
        self.sides = {"src": StoredSentences(src), "tgt": StoredSentences(tgt)}
        if [*map(len, src)] != [*map(len, tgt)]:
            sizes = [f"{len(self.sides[side]):,}" for side in SIDES]
            raise StoreError(f"{sizes[0]} source but {sizes[1]} target sentences")
        if len({shard.weights is None for shard in tgt}) > 1:
            raise StoreError("only some of the shards have weights")
        self.corpora = tuple(corpora) or (StoredCorpus("", 0, len(self)),)
        self.digest = digest  # of an open store's pairs; empty for pairs in memory

    def __len__(self) -> int:
        return len(self.sides["src"])

    @functools.cached_property
    def lengths(self) -> tuple[_Lengths, _Lengths]:
        """All source and target lengths, in memory: for small sets."""
        src, tgt = (side.lengths(np.arange(len(self))) for side in self.sides.values())
        return src, tgt

    def length_counts(self, first: int = 0, stop: int | None = None) -> LengthCounts:
        """Source and target lengths of pairs `first` to `stop`, and how often they occur."""
        counts = np.zeros((1, 1), np.int64)
        sides = (self.sides[side].all_lengths(first, stop) for side in SIDES)
        for src, tgt in zip(*sides, strict=True):
            grow = [
                (0, max(0, int(lengths.max(initial=0)) + 1 - size))
                for lengths, size in zip((src, tgt), counts.shape, strict=True)
            ]
            counts = np.pad(counts, grow)
            cells = src.astype(np.int64) * counts.shape[1] + tgt
            counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)
        src_kinds, tgt_kinds = np.nonzero(counts)
        return src_kinds, tgt_kinds, counts[src_kinds, tgt_kinds]


def runs(
    starts: Integer[np.ndarray, " runs"], lengths: Integer[np.ndarray, " runs"]
) -> Int64[np.ndarray, " items"]:
    """The numbers `start, start + 1, ...` of every run of that length, end to end."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) + np.repeat(starts - (ends - lengths), lengths)


@dataclasses.dataclass(frozen=True)
class Store:
    """The open token store of a run: its splits and its digest."""

    train: TokenPairs
    valid: TokenPairs
    digest: str

    @classmethod
    def open(
        cls, directory: str | Path, *, vocabulary_digest: str | None = None, thorough: bool = False
    ) -> Store:
        """Maps the store in `directory` and verifies every file. Raises StoreError.

        Of files over 64 MB it reads blocks, or every byte if `thorough` (about a second per GB).
        """
        index_file = Path(directory) / INDEX
        advice = f"; delete {os.path.realpath(directory)} and run `prepare` again"
        with json_errors_as(StoreError, index_file, advice):
            text = read_file(index_file)
            index = parse_json(text, index_file)
            if index["format"] not in (1, FORMAT):
                raise StoreError(f"{index_file}: has format {index['format']}, not {FORMAT}")
            if vocabulary_digest not in (None, index["vocabulary"]):
                raise StoreError(
                    f"{index_file}: was made with another vocabulary: "
                    "run `prepare` in a new directory"
                )
            splits = {
                split: _open_split(index_file, index, split, thorough=thorough) for split in SPLITS
            }
        return cls(**splits, digest=hashlib.sha256(text).hexdigest())


def file_name(split: str, number: int, side: str, part: str) -> str:
    """The name of a file of a shard; `part` is "tokens", "offsets" or "weights"."""
    return f"{_shard_name(split, number, side)}.{part}"


def _shard_name(split: str, number: int, side: str) -> str:
    return f"{split}-{number:05}.{side}"


def file_record(path: Path) -> dict[str, Any]:
    """A file's entry in the index."""
    record: dict[str, Any] = {"bytes": path.stat().st_size, "sha256": _digest(path, "sha256")}
    if record["bytes"] > _VERIFIED:
        record["blocks"] = _digest(path, "blocks")
    return record


def _digest(path: Path, kind: str) -> str:
    """sha256 of a file, or of "blocks" evenly spread over it, ends included."""
    with open(path, "rb") as stream:
        if kind == "sha256":
            return hashlib.file_digest(stream, "sha256").hexdigest()
        size, blocks = path.stat().st_size, _VERIFIED // _BLOCK
        sha256 = hashlib.sha256()
        for number in range(blocks):
            stream.seek((size - _BLOCK) * number // (blocks - 1))
            sha256.update(stream.read(_BLOCK))
        return sha256.hexdigest()


def _open_split(
    index_file: Path, index: dict[str, Any], split: str, *, thorough: bool
) -> TokenPairs:
    # It had one shard per split, without a number, and no corpora.
    first_format = index["format"] == 1
    shard_count = 1 if first_format else index["shards"][split]
    corpora = [] if first_format else _stored_corpora(index["corpora"][split])
    if index["dtype"] not in DTYPES:
        raise ValueError(f"dtype is {index['dtype']!r}, not one of {', '.join(DTYPES)}")

    sides, digests = [], []
    for side in SIDES:
        shards = []
        for number in range(shard_count):
            prefix = f"{split}.{side}" if first_format else _shard_name(split, number, side)
            tokens, token_digests = _open_shard(index_file, index, prefix, thorough=thorough)
            shards.append(tokens)
            digests += token_digests
        sides.append(shards)
    pairs = TokenPairs(sides[0], sides[1], corpora)
    if corpora and sum(corpus.size for corpus in corpora) != len(pairs):
        raise ValueError(f"{split} holds {len(pairs):,} pairs, but its corpora a different number")
    weights = [[corpus.size, corpus.weight] for corpus in pairs.corpora]
    pairs.digest = hashlib.sha256(json.dumps([digests, weights]).encode()).hexdigest()
    return pairs


def _stored_corpora(recorded: Sequence[dict[str, Any]]) -> list[StoredCorpus]:
    """The corpora of a split that have pairs."""
    corpora: list[StoredCorpus] = []
    first = 0
    for corpus in recorded:
        if corpus["pairs"]:
            corpora.append(StoredCorpus(corpus["name"], first, corpus["pairs"], corpus["weight"]))
            first += corpus["pairs"]
    return corpora


def _open_shard(
    index_file: Path, index: dict[str, Any], prefix: str, *, thorough: bool
) -> tuple[Tokens, list[str]]:
    """One side of a shard, whose files have this prefix, and the files' digests."""
    arrays, digests = [], []
    parts = {"tokens": index["dtype"], "offsets": "<i8"}
    if f"{prefix}.{WEIGHTS}" in index["files"]:
        parts[WEIGHTS] = "<f4"
    for part, dtype in parts.items():
        path = index_file.with_name(f"{prefix}.{part}")
        recorded = index["files"][path.name]
        arrays.append(_open_array(path, recorded, np.dtype(dtype), thorough=thorough))
        digests.append(recorded["sha256"])
    flat, offsets, *weights = arrays
    if not len(offsets) or offsets[-1] != len(flat):
        raise ValueError(f"the offsets of {prefix} do not match its tokens")
    if weights and len(weights[0]) != len(offsets) - 1:
        raise ValueError(f"{prefix} has another number of weights than of sentences")
    return Tokens(flat, offsets, *weights), digests


def _open_array(
    path: Path, recorded: dict[str, Any], dtype: np.dtype, *, thorough: bool
) -> np.ndarray:
    size = regular_size(path)
    advice = f"damaged or another store's; delete {path.parent.resolve()} and run `prepare` again"
    if size != recorded["bytes"]:
        raise StoreError(
            f"{path}: has {size:,} bytes, but {INDEX} records {recorded['bytes']:,}: {advice}"
        )
    kind = "blocks" if "blocks" in recorded and not thorough else "sha256"
    if _digest(path, kind) != recorded[kind]:
        raise StoreError(f"{path}: its contents do not match {INDEX}: {advice}")
    # An empty file cannot be mapped.
    return np.memmap(path, dtype, mode="r") if size else np.empty(0, dtype)
