"""Output in a bucket, where nothing can be appended to: parts in a folder, joined at the end."""

from __future__ import annotations

import functools
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from flaxformer_mt.bulk.sinks import Consumed, OutputError, Sink, read_record, write_record
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import as_path, asking, exists, persistently

T = TypeVar("T")

EVERY = 60.0  # seconds between two uploads, as for a run's growing files
PART = 1 << 23  # bytes after which one comes earlier


class BucketSink(Sink):
    """An object in a bucket. Raises OutputError if the store refuses something.

    FILE.part/ has the parts and state.json, which tells how many of them count; another machine can
    continue them. Nothing keeps two calls from writing the same FILE at once.
    """

    def __init__(
        self,
        path: str,
        *,
        restart: bool = False,
        every: float = EVERY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            self._path, self._folder = as_path(path), as_path(f"{path}.part")
        except RunDirectoryError as error:
            raise OutputError(str(error)) from error
        self._record = self._folder / "state.json"
        self._restart, self._every, self._clock = restart, every, clock
        self._identity: Mapping[str, Any] = {}
        self._waiting = bytearray()  # output that is not uploaded
        self._committed = 0  # bytes of it that `_consumed` is up to
        self._consumed = self._uploaded = Consumed()
        self._parts = 0
        self._last = clock()

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        self._identity = identity
        try:
            if not self._restart and exists(self._record):
                self._uploaded, self._parts = read_record(self._record, identity)
            if self._parts and not exists(self._part(0)):
                self._take_back()
            if not self._uploaded.lines:
                write_record(self._record, identity, Consumed(), 0)
        except RunDirectoryError as error:
            raise OutputError(str(error)) from error
        self.kept = str(self._folder)
        return self._uploaded

    def write(self, data: bytes) -> None:
        self._waiting += data

    def commit(self, consumed: Consumed) -> None:
        self._consumed, self._committed = consumed, len(self._waiting)
        if len(self._waiting) >= PART or self._clock() - self._last >= self._every:
            self._upload()

    def finish(self) -> None:
        self._upload()
        # Joined beside it first: what breaks off half-way must not be taken for the whole.
        whole = self._folder / "whole"
        self._ask(whole, lambda: _join(map(self._part, range(self._parts)), whole))
        self._ask(self._path, lambda: whole.replace(self._path))
        # As listed, for a call of before --restart may have had more of them; the first part goes
        # first, which tells a later call that FILE is the whole, and the record last.
        found = self._ask(self._folder, lambda: sorted(self._folder.iterdir()))
        parts = [path for path in found if re.fullmatch(r"\d{8,}|whole", path.name)]
        for path in (*parts, self._record):
            self._ask(path, functools.partial(path.unlink, missing_ok=True))
        self.kept = ""

    def close(self) -> None:
        """Uploads what is committed, unless the output is finished."""
        if self.kept:
            self._upload()

    def _upload(self) -> None:
        if self._consumed != self._uploaded and self._consumed.lines:
            data = bytes(self._waiting[: self._committed])
            path = self._part(self._parts)
            self._ask(path, lambda: path.write_bytes(data))
            self._parts, self._uploaded = self._parts + 1, self._consumed
            self._write_state()
            del self._waiting[: self._committed]
            self._committed = 0
        self._last = self._clock()

    def _take_back(self) -> None:
        """After a stop while parts were deleted, FILE becomes the only part again."""
        if not exists(self._path):  # its owner has taken it away
            self._uploaded, self._parts = Consumed(), 0
            return
        # The record first: FILE must never count beside parts that it already holds.
        self._parts = 1
        self._write_state()
        self._ask(self._folder, lambda: _join([self._path], self._part(0)))

    def _write_state(self) -> None:
        self._ask(
            self._record,
            lambda: write_record(self._record, self._identity, self._uploaded, self._parts),
        )

    def _part(self, number: int) -> Path:
        return self._folder / f"{number:08}"

    def _ask(self, path: Path, action: Callable[[], T]) -> T:
        try:
            return asking(path, "written", lambda: persistently(action))
        except (RunDirectoryError, OSError) as error:
            raise OutputError(f"{error}; what is complete is in {self._folder}") from error


def _join(parts: Iterable[Path], whole: Path) -> None:
    with whole.open("wb") as joined:
        for part in parts:
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, joined, 1 << 20)
