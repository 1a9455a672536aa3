"""Where output goes: a stream, or a file that appears whole and that another call can go on with.

A file is written beside its name, as FILE.part, with FILE.part.json telling how far it is complete
and of what: the settings, and a digest of the input that was consumed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from flaxformer_mt.bulk.state import (
    Consumed,
    OutputError,
    Recorded,
    aside,
    read_state,
    write_state,
)
from flaxformer_mt.rundir.errors import RunDirectoryError


class Sink(Protocol):
    """Takes output in order. What is committed stays, whatever becomes of the process."""

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        """What an earlier call of the same `identity` has done; nothing, if there was none.

        Raises OutputError where there is output of something else.
        """

    def write(self, data: bytes) -> None:
        """Adds to the output."""

    def commit(self, consumed: Consumed) -> None:
        """The output up to here is that of the input `consumed`."""

    def finish(self) -> None:
        """The output is complete."""

    def close(self) -> None:
        """Lets go of it, finished or not."""

    @property
    def kept(self) -> str:
        """Where the output of a call that ends early is, in words; "" if nowhere."""


class StreamSink:
    """Standard output, a pipe or a device: nothing can be gone on with.

    With a `name`, raises OutputError where the system refuses something.
    """

    kept = ""

    def __init__(self, stream: BinaryIO, name: str = "") -> None:
        self._stream, self._name = stream, name

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        return Consumed()

    def write(self, data: bytes) -> None:
        with self._explained():
            self._stream.write(data)

    def commit(self, consumed: Consumed) -> None:
        with self._explained():
            self._stream.flush()

    def finish(self) -> None:
        with self._explained():
            self._stream.flush()

    def close(self) -> None:
        pass

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._name:
                raise
            raise OutputError(
                f"{self._name}: cannot be written: {error.strerror or error}"
            ) from error


class FileSink:
    """A local file. Raises OutputError wherever the system refuses something."""

    def __init__(self, path: str, *, restart: bool = False) -> None:
        self._path, self._part = Path(path), Path(f"{path}.part")
        self._state = Path(f"{path}.part.json")
        self._restart = restart
        self._identity: Mapping[str, Any] = {}
        self._stream: BinaryIO | None = None
        self._size = 0  # bytes of output that are committed or were written since
        self._consumed = Consumed()
        self._begun = False
        self._in_place = False  # an earlier call was killed after the last step but tidying up

    @property
    def kept(self) -> str:
        return str(self._part) if self._begun else ""

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        self._identity = identity
        try:
            with self._explained():
                self._stream = self._opened()
                found = os.fstat(self._stream.fileno()).st_size
                recorded = self._recorded(found)
                self._consumed, self._size = recorded.consumed, recorded.output
                if not self._consumed.lines:
                    write_state(self._state, identity, Recorded())
                if not self._in_place:
                    self._stream.truncate(self._size)
                    self._stream.seek(self._size)
        except BaseException:
            self.close()
            raise
        self._begun = True
        return self._consumed

    def write(self, data: bytes) -> None:
        assert self._stream is not None
        with self._explained():
            if self._in_place:
                # The input has grown since: what there is becomes a part again.
                self._stream.truncate(0)
                with self._path.open("rb") as whole:
                    shutil.copyfileobj(whole, self._stream)
                self._in_place = False
            self._stream.write(data)
        self._size += len(data)

    def commit(self, consumed: Consumed) -> None:
        assert self._stream is not None
        with self._explained():
            self._stream.flush()
            # In this order, so that the record never tells of output that is not there.
            os.fsync(self._stream.fileno())
            now = Recorded(consumed=consumed, output=self._size)
            write_state(self._state, self._identity, now)
        self._consumed = consumed

    def finish(self) -> None:
        assert self._stream is not None
        with self._explained():
            self._stream.flush()
            os.fsync(self._stream.fileno())
            if self._in_place:
                self._part.unlink(missing_ok=True)
            else:
                # A kill after the renaming must not look like the loss of the part.
                whole = Recorded(consumed=self._consumed, output=self._size, finished=True)
                write_state(self._state, self._identity, whole)
                os.replace(self._part, self._path)
            for path in (self._state, aside(self._state)):
                path.unlink(missing_ok=True)
            self._stream.close()

    def close(self) -> None:
        """Lets go of the file; what was written stays in FILE.part."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()

    def _opened(self) -> BinaryIO:
        """FILE.part, which no other process has open for writing; neither cut nor read."""
        while True:
            descriptor = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(descriptor)
                raise OutputError(f"{self._part}: another process is writing it") from error
            except OSError:
                pass  # a file system without locks
            # Another process may just have finished it, which made it FILE.
            if self._part.exists() and os.path.samestat(os.fstat(descriptor), self._part.stat()):
                return os.fdopen(descriptor, "r+b")
            os.close(descriptor)

    def _recorded(self, found: int) -> Recorded:
        """What is done by the record beside a part of `found` bytes."""
        if self._restart or not (found or self._state.exists()):
            return Recorded()
        if not self._state.exists():
            raise OutputError(
                f"{self._part}: is there, and no {self._state.name} tells what it is part of: move "
                "it away, or begin anew with --restart"
            )
        recorded = read_state(self._state, self._identity)
        if found >= recorded.output:
            return recorded
        there = self._path.stat().st_size if self._path.is_file() else None
        self._in_place = recorded.finished and there == recorded.output
        if found and not self._in_place:
            raise OutputError(
                f"{self._part}: has {found:,} bytes where {self._state.name} tells of "
                f"{recorded.output:,}: it was changed; begin anew with --restart"
            )
        return recorded if self._in_place else Recorded()  # its owner has taken it away

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kept = f"; what is complete is in {self._part}" if self._begun else ""
            raise OutputError(
                f"{self._path}: cannot be written: {error.strerror or error}{kept}"
            ) from error
        except RunDirectoryError as error:
            raise OutputError(f"{error}; what is complete is in {self._part}") from error
