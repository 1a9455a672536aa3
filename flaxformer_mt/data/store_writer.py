"""Writing a token store. Without `finish` there is no index, and it cannot be opened.

Nothing is forced to disk: that is for whoever puts the folder into its place.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, Integer

from flaxformer_mt.data.store import (
    DTYPES,
    FORMAT,
    INDEX,
    SHARD_TOKENS,
    SIDES,
    SPLITS,
    StoreError,
    file_name,
    file_record,
    shard_name,
)

_PARTS = ("tokens", "offsets")


class StoreWriter(contextlib.AbstractContextManager["StoreWriter"]):
    """Writes a store into an existing empty folder. Not safe for several threads."""

    def __init__(
        self,
        directory: Path,
        *,
        vocabulary_size: int,
        vocabulary_digest: str,
        shard_tokens: int = SHARD_TOKENS,
    ) -> None:
        self._directory = directory
        self._vocabulary_digest = vocabulary_digest
        self._shard_tokens = shard_tokens
        self._dtype = np.dtype(DTYPES[vocabulary_size > 1 << 16])
        self._open: dict[tuple[str, str, str], _HashedFile] = {}
        self._corpora: dict[str, list[dict[str, Any]]] = {split: [] for split in SPLITS}
        self._shards = dict.fromkeys(SPLITS, 0)  # the number of the one that is open
        self._finished: dict[str, dict[str, Any]] = {}
        for split in SPLITS:
            self._begin_shard(split)

    def begin_corpus(self, split: str, name: str, weight: float = 0.0) -> None:
        """What is appended to the split from here on is this corpus's."""
        self._corpora[split].append({"name": name, "weight": weight, "pairs": 0})

    def append(
        self,
        split: str,
        src: Integer[np.ndarray, " src_tokens"],
        src_lengths: Int64[np.ndarray, " pairs"],
        tgt: Integer[np.ndarray, " tgt_tokens"],
        tgt_lengths: Int64[np.ndarray, " pairs"],
    ) -> None:
        """Add pairs to a split: sentences end to end, each with its end mark, and their lengths."""
        if len(src_lengths) != len(tgt_lengths):
            raise StoreError(f"{len(src_lengths)} source but {len(tgt_lengths)} target sentences")
        if not self._corpora[split]:
            self.begin_corpus(split, "")
        for side, flat, lengths in (("src", src, src_lengths), ("tgt", tgt, tgt_lengths)):
            tokens = self._open[split, side, "tokens"]
            offsets = tokens.size // self._dtype.itemsize + np.cumsum(lengths, dtype=np.int64)
            tokens.write(flat.astype(self._dtype))
            self._open[split, side, "offsets"].write(offsets.astype("<i8"))
        self._corpora[split][-1]["pairs"] += len(src_lengths)
        full = self._shard_tokens * self._dtype.itemsize
        if any(self._open[split, side, "tokens"].size >= full for side in SIDES):
            self._end_shard(split)
            self._shards[split] += 1
            self._begin_shard(split)

    def __exit__(self, *_: Any) -> None:
        for file in self._open.values():
            file.close()

    def finish(self) -> str:
        """Close the files, write the index last, and return the store's digest."""
        for split in SPLITS:
            self._end_shard(split)
        index = {
            "format": FORMAT,
            "dtype": self._dtype.str,
            "vocabulary": self._vocabulary_digest,
            "corpora": self._corpora,
            "shards": {split: number + 1 for split, number in self._shards.items()},
            "files": self._finished,
        }
        text = (json.dumps(index, indent=2) + "\n").encode()
        (self._directory / INDEX).write_bytes(text)
        return hashlib.sha256(text).hexdigest()

    def _begin_shard(self, split: str) -> None:
        for side, part in itertools.product(SIDES, _PARTS):
            name = file_name(shard_name(split, self._shards[split]), side, part)
            file = _HashedFile(self._directory / name)
            self._open[split, side, part] = file
            if part == "offsets":
                file.write(np.zeros(1, "<i8"))

    def _end_shard(self, split: str) -> None:
        for side, part in itertools.product(SIDES, _PARTS):
            file = self._open[split, side, part]
            file.close()
            self._finished[file.path.name] = file_record(file.path, file.sha256.hexdigest())


class _HashedFile:
    """A file being written whose size and digest are known at the end without reading it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "wb")  # closed by its owner
        self.sha256 = hashlib.sha256()
        self.size = 0

    def write(self, array: np.ndarray) -> None:
        data = array.tobytes()
        self._file.write(data)
        self.sha256.update(data)
        self.size += len(data)

    def close(self) -> None:
        self._file.close()
