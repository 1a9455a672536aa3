"""Writing a token store, which can be opened after `finish`; the caller forces it to disk."""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float32, Int64, Integer

from flaxformer_mt.data import store

_PARTS = ("tokens", "offsets")
_NO_WEIGHTS = np.empty(0, np.float32)


class StoreWriter(contextlib.AbstractContextManager["StoreWriter"]):
    """Writes a store into an existing empty folder. Not thread-safe."""

    def __init__(
        self,
        directory: Path,
        *,
        vocabulary_size: int,
        vocabulary_digest: str,
        has_weights: bool = False,
    ) -> None:
        """`has_weights`: each training pair comes with one."""
        self._directory = directory
        self._has_weights = has_weights
        self._vocabulary_digest = vocabulary_digest
        self._dtype = np.dtype(store.DTYPES[vocabulary_size > 1 << 16])
        self._open: dict[tuple[str, str, str], BinaryIO] = {}
        self._corpora: dict[str, list[dict[str, Any]]] = {split: [] for split in store.SPLITS}
        self._shards = dict.fromkeys(store.SPLITS, 0)
        self._finished: dict[str, dict[str, Any]] = {}
        for split in store.SPLITS:
            self._begin_shard(split)

    def begin_corpus(self, split: str, name: str, weight: float = 0.0) -> None:
        """Pairs appended to the split from here on are this corpus's."""
        self._corpora[split].append({"name": name, "weight": weight, "pairs": 0})

    def weigh(self, split: str, weights: Sequence[float]) -> None:
        """Gives the split's corpora weights that were unknown when they began."""
        for corpus, weight in zip(self._corpora[split], weights, strict=True):
            corpus["weight"] = weight

    def append(
        self,
        split: str,
        src: Integer[np.ndarray, " src_tokens"],
        src_lengths: Int64[np.ndarray, " pairs"],
        tgt: Integer[np.ndarray, " tgt_tokens"],
        tgt_lengths: Int64[np.ndarray, " pairs"],
        weights: Float32[np.ndarray, " pairs"] = _NO_WEIGHTS,
    ) -> None:
        """Adds pairs: sentences end to end, each with its end mark, their lengths and weights."""
        if not self._corpora[split]:
            self.begin_corpus(split, "")
        longest = 0
        for side, flat, lengths in (("src", src, src_lengths), ("tgt", tgt, tgt_lengths)):
            tokens = self._open[split, side, "tokens"]
            before = tokens.tell() // self._dtype.itemsize
            tokens.write(flat.astype(self._dtype).tobytes())
            ends = before + np.cumsum(lengths, dtype="<i8")
            self._open[split, side, "offsets"].write(ends.tobytes())
            longest = max(longest, before + len(flat))
        if (split, "tgt", store.WEIGHTS) in self._open:
            self._open[split, "tgt", store.WEIGHTS].write(weights.astype("<f4").tobytes())
        self._corpora[split][-1]["pairs"] += len(src_lengths)
        if longest >= store.SHARD_TOKENS:
            self._end_shard(split)
            self._begin_shard(split)

    def __exit__(self, *_: Any) -> None:
        for file in self._open.values():
            file.close()

    def finish(self) -> str:
        """Closes the files, writes the index last, and returns the store's digest."""
        for split in store.SPLITS:
            self._end_shard(split)
        index = {
            "format": store.FORMAT,
            "dtype": self._dtype.str,
            "vocabulary": self._vocabulary_digest,
            "corpora": self._corpora,
            "shards": self._shards,
            "files": self._finished,
        }
        text = (json.dumps(index, indent=2) + "\n").encode()
        (self._directory / store.INDEX).write_bytes(text)
        return hashlib.sha256(text).hexdigest()

    def _begin_shard(self, split: str) -> None:
        for side, part in self._files_of_shard(split):
            path = self._directory / store.file_name(split, self._shards[split], side, part)
            file = self._open[split, side, part] = open(path, "wb")
            if part == "offsets":
                file.write(bytes(8))
        self._shards[split] += 1

    def _files_of_shard(self, split: str) -> list[tuple[str, str]]:
        """The side and the part of each file."""
        weights = [("tgt", store.WEIGHTS)] if self._has_weights and split == "train" else []
        return [*itertools.product(store.SIDES, _PARTS), *weights]

    def _end_shard(self, split: str) -> None:
        for side, part in self._files_of_shard(split):
            file = self._open[split, side, part]
            file.close()
            path = Path(file.name)
            self._finished[path.name] = store.file_record(path)
