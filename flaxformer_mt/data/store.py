"""The token store: every pair's token ids in flat memory-mapped files, with digests.

Four files a split: `SPLIT.SIDE.tokens`, all sentences end to end, each with its end mark, and
`SPLIT.SIDE.offsets`, where each begins (int64, one more than there are sentences). `store.json`
records sizes and sha256 digests. Only the operating system's page cache holds tokens, so a corpus
of any size takes memory for its lengths alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int32, Int64, Integer

from flaxformer_mt.data.vocabulary import EOS, PAD

FORMAT = 1
INDEX = "store.json"
SPLITS = ("train", "valid")
SIDES = ("src", "tgt")

Side = Literal["src", "tgt"]


class StoreError(ValueError):
    """A token store that is missing, incomplete, damaged or another one; names the file."""


@dataclasses.dataclass(frozen=True)
class Tokens:
    """One side of a split: flat ids and the offsets between sentences."""

    flat: Integer[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " pairs_and_one"]

    def __getitem__(self, index: int) -> Int32[np.ndarray, " length"]:
        start, stop = self.offsets[index], self.offsets[index + 1]
        return np.asarray(self.flat[start:stop], np.int32)

    def gather(
        self, indices: Int64[np.ndarray, " rows"], length: int
    ) -> Int32[np.ndarray, "rows {length}"]:
        """The sentences at `indices`, cut or filled with PAD to `length`."""
        start = self.offsets[indices][:, None]
        stop = self.offsets[indices + 1][:, None]
        where = start + np.arange(length)
        inside = where < stop
        # Places beyond a sentence may lie beyond the file too: read its first token instead.
        rows = self.flat[np.where(inside, where, start)].astype(np.int32)
        rows[~inside] = PAD
        return rows


class TokenPairs:
    """A split's pairs: token ids with the end mark, and their lengths, which count it."""

    def __init__(self, src: Tokens, tgt: Tokens) -> None:
        if len(src.offsets) != len(tgt.offsets):
            raise StoreError(
                f"{len(src.offsets) - 1:,} source but {len(tgt.offsets) - 1:,} target sentences"
            )
        self.sides = {"src": src, "tgt": tgt}
        self.src_lengths: Int32[np.ndarray, " pairs"] = np.diff(src.offsets).astype(np.int32)
        self.tgt_lengths: Int32[np.ndarray, " pairs"] = np.diff(tgt.offsets).astype(np.int32)

    @classmethod
    def from_lists(cls, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> TokenPairs:
        """Pairs in memory from token ids without marks; the end mark is added."""
        return cls(*(Tokens(*_flatten(side, np.dtype(np.uint32))) for side in (src, tgt)))

    def __len__(self) -> int:
        return len(self.src_lengths)

    def src(self, index: int) -> Int32[np.ndarray, " length"]:
        """A source sentence's pieces and EOS."""
        return self.sides["src"][index]

    def tgt(self, index: int) -> Int32[np.ndarray, " length"]:
        """A target sentence's pieces and EOS."""
        return self.sides["tgt"][index]


@dataclasses.dataclass(frozen=True)
class Store:
    """The open token store of a run: its splits, its digest and its vocabulary's."""

    directory: Path
    train: TokenPairs
    valid: TokenPairs
    digest: str
    vocabulary_digest: str

    @classmethod
    def open(cls, directory: str | Path, *, vocabulary_digest: str | None = None) -> Store:
        """Map the store in `directory` and verify every file (about a second a gigabyte).

        Raises:
          StoreError: a file is missing, of another size or digest than recorded, or the
            store was made with another vocabulary than `vocabulary_digest`.
        """
        index_file = Path(directory) / INDEX
        try:
            text = index_file.read_bytes()
            index = json.loads(text)
            if index["format"] != FORMAT:
                raise StoreError(
                    f"{index_file}: has format {index['format']}; this program reads {FORMAT}"
                )
            made_with = index["vocabulary"]
            if vocabulary_digest not in (None, made_with):
                raise StoreError(
                    f"{index_file}: was made with another vocabulary (digest {made_with[:12]}, "
                    f"not {vocabulary_digest[:12]}): run `prepare` in a new directory"
                )
            dtype = np.dtype(index["dtype"])
            splits = {
                split: _open_split(index_file, split, index["files"], dtype) for split in SPLITS
            }
        except OSError as error:
            raise StoreError(f"{error.filename}: cannot be read: {error.strerror}") from error
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise StoreError(f"{index_file}: is damaged: {error!r}") from error
        digest = hashlib.sha256(text).hexdigest()
        return cls(
            directory=Path(directory),
            train=splits["train"],
            valid=splits["valid"],
            digest=digest,
            vocabulary_digest=made_with,
        )


class StoreWriter:
    """Writes a store into an existing empty folder; without `finish` it cannot be opened."""

    def __init__(self, directory: Path, *, vocabulary_size: int, vocabulary_digest: str) -> None:
        self._directory = directory
        self._vocabulary_digest = vocabulary_digest
        self._dtype = np.dtype("<u2" if vocabulary_size <= 1 << 16 else "<u4")
        self._open = contextlib.ExitStack()
        self._files = {}
        self._ends: dict[tuple[str, str], int] = {}
        for split, side in itertools.product(SPLITS, SIDES):
            self._ends[split, side] = 0
            for part in ("tokens", "offsets"):
                path = directory / _file_name(split, side, part)
                self._files[split, side, part] = self._open.enter_context(_HashedFile(path))
            self._files[split, side, "offsets"].write(np.zeros(1, "<i8"))

    def append(
        self, split: str, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]
    ) -> None:
        """Add pairs of token ids without marks to a split; the end mark is added."""
        for side, sentences in (("src", src), ("tgt", tgt)):
            flat, offsets = _flatten(sentences, self._dtype)
            self._files[split, side, "tokens"].write(flat)
            self._files[split, side, "offsets"].write(
                (offsets[1:] + self._ends[split, side]).astype("<i8")
            )
            self._ends[split, side] += len(flat)

    def close(self) -> None:
        self._open.close()

    def finish(self) -> str:
        """Close the files, write the index last, and return the store's digest."""
        self.close()
        index = {
            "format": FORMAT,
            "dtype": self._dtype.str,
            "vocabulary": self._vocabulary_digest,
            "files": {
                _file_name(*key): {"bytes": file.size, "sha256": file.sha256.hexdigest()}
                for key, file in self._files.items()
            },
        }
        text = (json.dumps(index, indent=2) + "\n").encode()
        (self._directory / INDEX).write_bytes(text)
        return hashlib.sha256(text).hexdigest()


class _HashedFile(contextlib.AbstractContextManager["_HashedFile"]):
    """A file being written whose size and digest are known at the end without reading it."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "xb")
        self.sha256 = hashlib.sha256()
        self.size = 0

    def write(self, array: np.ndarray) -> None:
        data = array.tobytes()
        self._file.write(data)
        self.sha256.update(data)
        self.size += len(data)

    def __exit__(self, *_: Any) -> None:
        self._file.close()


def _file_name(split: str, side: str, part: str) -> str:
    return f"{split}.{side}.{part}"


def _flatten(
    sentences: Sequence[Sequence[int]], dtype: np.dtype
) -> tuple[Integer[np.ndarray, " tokens"], Int64[np.ndarray, " pairs_and_one"]]:
    """All sentences end to end, EOS after each, and the offsets between them."""
    lengths = np.fromiter((len(sentence) for sentence in sentences), np.int64, len(sentences))
    offsets = np.zeros(len(sentences) + 1, np.int64)
    np.cumsum(lengths + 1, out=offsets[1:])
    flat = np.full(offsets[-1], EOS, dtype)
    pieces = np.fromiter(itertools.chain.from_iterable(sentences), dtype, int(lengths.sum()))
    is_piece = np.ones(len(flat), bool)
    is_piece[offsets[1:] - 1] = False
    flat[is_piece] = pieces
    return flat, offsets


def _open_split(
    index_file: Path, split: str, recorded: dict[str, Any], dtype: np.dtype
) -> TokenPairs:
    sides = []
    for side in SIDES:
        arrays = []
        for part, part_dtype in (("tokens", dtype), ("offsets", np.dtype("<i8"))):
            name = _file_name(split, side, part)
            arrays.append(_open_array(index_file, name, recorded[name], part_dtype))
        sides.append(Tokens(*arrays))
    return TokenPairs(*sides)


def _open_array(
    index_file: Path, name: str, recorded: dict[str, Any], dtype: np.dtype
) -> np.ndarray:
    path = index_file.with_name(name)
    size = path.stat().st_size
    if size != recorded["bytes"]:
        raise StoreError(
            f"{path}: has {size:,} bytes where {index_file.name} records {recorded['bytes']:,}: "
            f"it is truncated or another store's; delete {path.parent} and run `prepare` again"
        )
    with open(path, "rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != recorded["sha256"]:
        raise StoreError(
            f"{path}: its contents are not those recorded in {index_file.name}: it is damaged or "
            f"another store's; delete {path.parent} and run `prepare` again"
        )
    # An empty file cannot be mapped.
    return np.memmap(path, dtype, mode="r") if size else np.empty(0, dtype)
