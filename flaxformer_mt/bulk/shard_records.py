"""Finished shards of an output, and the records of where each comes from and what it holds."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from flaxformer_mt.bulk.output_errors import OutputError, output_errors
from flaxformer_mt.files.reading import regular_size
from flaxformer_mt.rundir import paths

_CHUNK = 1 << 20  # bytes

Place = tuple[int, str]
"""Between two lines of an input: the number of those before, and a digest of the last one."""
Ends = tuple[Place, Place]  # of a shard's part of the input


def record_of(shard: str) -> Path:
    """The file that says where a finished shard comes from. `FILE.shard-*` doesn't match it."""
    path = paths.as_path(shard)
    return path.with_name(f"{path.name.replace('.shard-', '.record-')}.json")


class Tally:
    """Bytes, line ends and sha256 of an output."""

    def __init__(self) -> None:
        self.size = self.lines = 0
        self._digest = hashlib.sha256()

    def add(self, data: bytes) -> None:
        self.size += len(data)
        self.lines += data.count(b"\n")
        self._digest.update(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def content(self) -> dict[str, Any]:
        """The description of a shard in its record."""
        return {"bytes": self.size, "lines": self.lines, "sha256": self.sha256}


def pieces(stream: BinaryIO, size: int | None = None) -> Iterator[bytes]:
    """The next `size` bytes of a stream, or all to its end, some at a time."""
    if size is None:
        while piece := stream.read(_CHUNK):
            yield piece
        return

    remaining = size
    while remaining and (piece := stream.read(min(remaining, _CHUNK))):
        yield piece
        remaining -= len(piece)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """The call and the input that a finished shard comes from, and its content.

    Records of earlier versions lack `whole` and `output`, which are None then.
    """

    identity: Mapping[str, Any]
    start: list[Any]  # a Place, after a round trip through JSON
    stop: list[Any]
    whole: int | None  # lines of the input
    output: Mapping[str, Any] | None  # `Tally.content`

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> ShardRecord:
        """Raises KeyError, TypeError and ValueError for other content."""
        output = record.get("output")
        if output is not None:
            output = {name: output[name] for name in Tally().content()}
        return cls(
            identity=dict(record["identity"]),
            start=[int(record["start"][0]), str(record["start"][1])],
            stop=[int(record["stop"][0]), str(record["stop"][1])],
            whole=record.get("whole"),
            output=output,
        )


def shard_content(shard: str, record: ShardRecord) -> Iterator[bytes]:
    """A finished shard's bytes. Raises OutputError, before the first or after the last, if they
    aren't those that its record describes."""
    path = paths.as_path(shard)
    tally = Tally()
    with output_errors(path, verb="read"):
        if isinstance(path, Path):  # before it is opened: a FIFO would wait for its writer
            _check(shard, record, {"bytes": regular_size(path)})
        with path.open("rb") as stream:
            for piece in pieces(stream):
                tally.add(piece)
                yield piece
    _check(shard, record, tally.content())


def check_shard(shard: str, record: ShardRecord) -> None:
    """Raises OutputError unless a finished shard is as its record describes it."""
    for _ in shard_content(shard, record):
        pass


def _check(shard: str, record: ShardRecord, content: Mapping[str, Any]) -> None:
    if record.output is None:
        return
    for name, actual in content.items():
        if actual != record.output[name]:
            raise OutputError(
                f"{shard}: has changed since it was made: {name} {actual!r}, but "
                f"{record_of(shard).name} says {record.output[name]!r}; make this shard again"
            )


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first name whose values differ."""
    for name in {**old, **new}:
        if old.get(name) != new.get(name):
            return name
    return None
