"""Output in a bucket, where nothing can be appended to: parts in a folder, joined at the end.

`gs://BUCKET/FILE.part/` has the parts and state.json, which tells how many of them count; another
machine can go on with them. FILE appears whole. Nothing keeps two calls from writing the same FILE
at once.
"""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flaxformer_mt.bulk.state import Consumed, OutputError, Recorded, read_state, write_state
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.paths import as_path, asking, exists, persistently

EVERY = 60.0  # seconds between two uploads, as for a run's growing files
PART = 1 << 23  # bytes after which one comes earlier


class BucketSink:
    """An object in a bucket. Raises OutputError if the store refuses something."""

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
        self._state = self._folder / "state.json"
        self._restart, self._every, self._clock = restart, every, clock
        self._identity: Mapping[str, Any] = {}
        self._waiting = bytearray()  # output that is not uploaded
        self._committed = 0  # bytes of it that `_consumed` is up to
        self._consumed = self._uploaded = Consumed()
        self._parts = 0
        self._begun = False
        self._last = clock()

    @property
    def kept(self) -> str:
        return str(self._folder) if self._begun else ""

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        self._identity = identity
        try:
            if not self._restart and exists(self._state):
                found = read_state(self._state, identity)
                self._uploaded, self._parts = found.consumed, found.output
            else:
                write_state(self._state, identity, Recorded())
        except RunDirectoryError as error:
            raise OutputError(str(error)) from error
        self._begun = True
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
        self._ask(whole, lambda: self._join(whole))
        self._ask(self._path, lambda: whole.replace(self._path))
        # The record first: without it what is left are no parts of anything.
        for path in (self._state, *self._names()):
            self._ask(path, functools.partial(path.unlink, missing_ok=True))
        self._begun = False

    def close(self) -> None:
        """Uploads what is committed, unless the output is finished."""
        if self._begun:
            self._upload()

    def _upload(self) -> None:
        if self._consumed != self._uploaded and self._consumed.lines:
            data = bytes(self._waiting[: self._committed])
            path = self._name(self._parts)
            self._ask(path, lambda: path.write_bytes(data))
            state, now = self._state, Recorded(consumed=self._consumed, output=self._parts + 1)
            self._ask(state, lambda: write_state(state, self._identity, now))
            self._parts, self._uploaded = now.output, self._consumed
            del self._waiting[: self._committed]
            self._committed = 0
        self._last = self._clock()

    def _join(self, whole: Path) -> None:
        with whole.open("wb") as joined:
            for part in self._names():
                with part.open("rb") as stream:
                    shutil.copyfileobj(stream, joined, 1 << 20)

    def _names(self) -> Iterator[Path]:
        return map(self._name, range(self._parts))

    def _name(self, number: int) -> Path:
        return self._folder / f"{number:08}"

    def _ask(self, path: Path, action: Callable[[], Any]) -> None:
        kept = f"; what is complete is in {self._folder}"
        try:
            asking(path, "written", lambda: persistently(action))
        except (RunDirectoryError, OSError) as error:
            raise OutputError(f"{error}{kept}") from error
