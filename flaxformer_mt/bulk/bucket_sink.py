"""Output in a bucket, where nothing can be appended to: parts in a folder, joined at the end.

`gs://BUCKET/FILE.part/` has the parts and state.json, which tells how many of them count; another
machine can go on with them. FILE appears whole; then the state tells its size, until the parts are
deleted. Nothing keeps two calls from writing the same FILE at once.
"""

from __future__ import annotations

import functools
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from flaxformer_mt.bulk.state import Consumed, OutputError, Recorded, read_state, write_state
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.paths import as_path, asking, exists, persistently

T = TypeVar("T")

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
        self._in_place = False  # an earlier call was stopped after the last step but tidying up
        self._last = clock()

    @property
    def kept(self) -> str:
        return str(self._folder) if self._begun else ""

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        self._identity = identity
        try:
            recorded = Recorded()
            if not self._restart and exists(self._state):
                recorded = read_state(self._state, identity)
            if recorded.finished:
                self._in_place = exists(self._path) and self._size() == recorded.output
                recorded = recorded if self._in_place else Recorded()  # its owner has taken it away
            if not recorded.consumed.lines:
                write_state(self._state, identity, Recorded())
        except RunDirectoryError as error:
            raise OutputError(str(error)) from error
        self._uploaded = recorded.consumed
        self._parts = 0 if self._in_place else recorded.output
        self._begun = True
        return self._uploaded

    def write(self, data: bytes) -> None:
        if self._in_place:
            # The input has grown since: what there is becomes a part again.
            first = self._name(0)
            self._ask(first, lambda: _join([self._path], first))
            self._record(Recorded(consumed=self._uploaded, output=1))
            self._parts, self._in_place = 1, False
        self._waiting += data

    def commit(self, consumed: Consumed) -> None:
        self._consumed, self._committed = consumed, len(self._waiting)
        if len(self._waiting) >= PART or self._clock() - self._last >= self._every:
            self._upload()

    def finish(self) -> None:
        if not self._in_place:
            self._upload()
            # Joined beside it first: what breaks off half-way must not be taken for the whole.
            whole = self._folder / "whole"
            self._ask(whole, lambda: _join(map(self._name, range(self._parts)), whole))
            self._ask(self._path, lambda: whole.replace(self._path))
            # A stop after this must not look like the loss of parts.
            size = self._ask(self._path, self._size)
            self._record(Recorded(consumed=self._uploaded, output=size, finished=True))
        # As listed, for a call of before --restart may have had more of them; the record last.
        found = self._ask(self._folder, lambda: list(self._folder.iterdir()))
        parts = [path for path in found if re.fullmatch(r"\d{8,}|whole", path.name)]
        for path in (*parts, self._state):
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
            self._record(Recorded(consumed=self._consumed, output=self._parts + 1))
            self._parts, self._uploaded = self._parts + 1, self._consumed
            del self._waiting[: self._committed]
            self._committed = 0
        self._last = self._clock()

    def _record(self, now: Recorded) -> None:
        self._ask(self._state, lambda: write_state(self._state, self._identity, now))

    def _size(self) -> int:
        """Of the whole, in bytes."""
        found: Any = asking(self._path, "reached", self._path.stat)
        return int(found.length)

    def _name(self, number: int) -> Path:
        return self._folder / f"{number:08}"

    def _ask(self, path: Path, action: Callable[[], T]) -> T:
        kept = f"; what is complete is in {self._folder}"
        try:
            return asking(path, "written", lambda: persistently(action))
        except (RunDirectoryError, OSError) as error:
            raise OutputError(f"{error}{kept}") from error


def _join(parts: Iterable[Path], whole: Path) -> None:
    with whole.open("wb") as joined:
        for part in parts:
            with part.open("rb") as stream:
                shutil.copyfileobj(stream, joined, 1 << 20)
