"""Where output goes: a stream, or a file that appears whole and that the same call can continue.

A file grows beside its name as FILE.part. The record, FILE.part.json, says what the output is part
of, how much of it is complete, and of how much of the input.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from flaxformer_mt.errors import UserError
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import read_json, write_json

FORMAT = 2  # of the record


class OutputError(UserError):
    """Output that cannot be written or continued; the message names the file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Consumed:
    """How much of the input is done: its first lines, their bytes, and a digest of them.

    `sums` is what was counted on the way.
    """

    lines: int = 0
    size: int = 0
    sha256: str = ""
    sums: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Sink:
    """Takes output in order. What is committed stays, whatever becomes of the process."""

    kept = ""
    """Where the output of a call that ends early is, in words; "" if nowhere."""

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        """What an earlier call of the same `identity` has done; nothing, if there was none.

        Raises OutputError where there is output of something else.
        """
        return Consumed()

    def write(self, data: bytes) -> None:
        """Adds to the output."""
        raise NotImplementedError

    def commit(self, consumed: Consumed) -> None:
        """The output up to here is that of the input `consumed`."""
        raise NotImplementedError

    def finish(self) -> None:
        """The output is complete."""
        raise NotImplementedError

    def close(self) -> None:
        """Lets go of it, finished or not."""


class StreamSink(Sink):
    """Standard output, a pipe or a device, which nothing can continue.

    With a `name`, raises OutputError where the system refuses something.
    """

    def __init__(self, stream: BinaryIO, name: str = "") -> None:
        self._stream, self._name = stream, name

    def write(self, data: bytes) -> None:
        with self._explained():
            self._stream.write(data)

    def commit(self, consumed: Consumed) -> None:
        self.finish()

    def finish(self) -> None:
        with self._explained():
            self._stream.flush()

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return _explained(self._name) if self._name else contextlib.nullcontext()


@contextlib.contextmanager
def _explained(path: str | Path, kept: str = "") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise OutputError(f"{path}: cannot be written: {why}{kept}") from error


class FileSink(Sink):
    """A local file. Raises OutputError wherever the system refuses something."""

    def __init__(self, path: str, *, restart: bool = False) -> None:
        self._path, self._part = Path(path), Path(f"{path}.part")
        self._record = Path(f"{path}.part.json")
        self._restart = restart
        self._identity: Mapping[str, Any] = {}
        self._stream: BinaryIO | None = None
        self._size = 0  # bytes of output that are committed or were written since

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        self._identity = identity
        try:
            with self._explained():
                self._stream = self._opened()
                done, self._size = self._earlier(self._stream)
                if not done.lines:
                    write_record(self._record, identity, done, 0)
                self._stream.truncate(self._size)
                self._stream.seek(self._size)
        except BaseException:
            self.close()
            raise
        self.kept = str(self._part)
        return done

    def write(self, data: bytes) -> None:
        assert self._stream is not None
        with self._explained():
            self._stream.write(data)
        self._size += len(data)

    def commit(self, consumed: Consumed) -> None:
        with self._explained():
            # In this order, so that the record never tells of output that is not there.
            self._force_to_disk()
            write_record(self._record, self._identity, consumed, self._size)

    def finish(self) -> None:
        with self._explained():
            self._force_to_disk()
            os.replace(self._part, self._path)
            for path in (self._record, _aside(self._record)):
                path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Lets go of the file; what was written stays in FILE.part."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                self._stream.close()

    def _force_to_disk(self) -> None:
        assert self._stream is not None
        self._stream.flush()
        os.fsync(self._stream.fileno())

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
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), self._part.stat()):
                    return os.fdopen(descriptor, "r+b")
            os.close(descriptor)  # another process has just finished it, which made it FILE

    def _earlier(self, stream: BinaryIO) -> tuple[Consumed, int]:
        """What an earlier call has done, and how many bytes of FILE.part that has made."""
        found = os.fstat(stream.fileno()).st_size
        if self._restart or not (found or self._record.exists()):
            return Consumed(), 0
        if not self._record.exists():
            raise OutputError(
                f"{self._part}: is there, and no {self._record.name} tells what it is part of: "
                "move it away, or begin anew with --restart"
            )
        done, size = read_record(self._record, self._identity)
        if found < size and self._path.is_file() and self._path.stat().st_size == size:
            # Killed between the last two steps, or here: what became FILE is a part again.
            with self._path.open("rb") as whole:
                shutil.copyfileobj(whole, stream)
        elif 0 < found < size:
            raise OutputError(
                f"{self._part}: has {found:,} bytes where {self._record.name} tells of {size:,}: "
                "it was changed; begin anew with --restart"
            )
        elif found < size:
            return Consumed(), 0  # its owner has taken it away
        return done, size

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        kept = f"; what is complete is in {self._part}"
        try:
            with _explained(self._path, kept if self.kept else ""):
                yield
        except RunDirectoryError as error:
            raise OutputError(f"{error}{kept}") from error


def write_record(path: Path, identity: Mapping[str, Any], consumed: Consumed, made: int) -> None:
    """Records what the output is part of, and how much of it (bytes, parts) is complete."""
    record = {
        "format": FORMAT,
        "identity": dict(identity),
        "output": made,
        "consumed": dataclasses.asdict(consumed),
    }
    write_json(path, record, aside=_aside(path))


def _aside(path: Path) -> Path:
    """What a kill may leave beside a record, of which only one process writes."""
    return path.with_name(f".{path.name}.tmp")


def read_record(path: Path, identity: Mapping[str, Any]) -> tuple[Consumed, int]:
    """What is done, and how much output that has made. Raises OutputError for another `identity`.

    A record of nothing could belong to any call.
    """
    try:
        record = read_json(path)
        if (version := record.get("format")) != FORMAT:
            raise ValueError(f"has format {version}, and this program reads {FORMAT}")
        done, made = Consumed(**record["consumed"]), int(record["output"])
        then: dict[str, Any] = dict(record["identity"])
        if not all(isinstance(number, int) for number in (done.lines, done.size)):
            raise TypeError("its counts are not integers")
    except (RunDirectoryError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise OutputError(
            f"{path}: cannot be continued: {error}; begin anew with --restart"
        ) from error
    if not done.lines:
        return Consumed(), 0
    # As they look after a round trip through JSON.
    now = json.loads(json.dumps(dict(identity)))
    for name in {**then, **now}:
        if then.get(name) != now.get(name):
            raise OutputError(
                f"{path}: tells of a call with {name} {then.get(name)!r}, and now it is "
                f"{now.get(name)!r}: what it has made does not belong to this; call it as before, "
                "or begin anew with --restart"
            )
    return done, made
