"""Where output goes: a stream, or a file that appears complete and that the same call can resume.

A file grows as FILE.part; FILE.part.json records which call it belongs to, and how much output and
input is done. In a bucket nothing can be appended to: parts are in a folder and joined at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from flaxformer_mt.bulk.output_errors import OutputError, output_errors
from flaxformer_mt.bulk.shard_records import Ends, Tally, difference, pieces, record_of
from flaxformer_mt.files.atomic import open_in_place
from flaxformer_mt.rundir import paths

RECORD_FORMAT = 2
UPLOAD_EVERY = 60.0  # seconds between uploads
UPLOAD_BYTES = 1 << 23  # output that is uploaded earlier


@dataclasses.dataclass(frozen=True, kw_only=True)
class Consumed:
    """How much of the input is done: lines, their bytes and digest, and sums over them."""

    lines: int = 0
    size: int = 0
    sha256: str = ""
    sums: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Sink:
    """Takes output in order. Committed output survives the process."""

    kept = ""  # the place of the output if a call ends early

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        """The input that earlier calls of the same `identity` have done. Raises OutputError for
        another call's output."""
        return Consumed()

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def commit(self, consumed: Consumed) -> None:
        """Output up to here belongs to the input `consumed`."""
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Releases the output, finished or not."""


class StreamSink(Sink):
    """Standard output, or the pipe or device `name`, which raises OutputError."""

    def __init__(self, stream: BinaryIO | None, name: str = "") -> None:
        self._path = Path(name) if name else None
        with output_errors(self._path):
            self._stream = stream or open(name, "wb")

    def write(self, data: bytes) -> None:
        with output_errors(self._path):
            self._stream.write(data)

    def commit(self, consumed: Consumed) -> None:
        self.finish()

    def finish(self) -> None:
        with output_errors(self._path):
            self._stream.flush()

    def close(self) -> None:
        if self._path is not None:
            with contextlib.suppress(OSError):  # said already, when it was written
                self._stream.close()


class _Continued(Sink):
    """A sink whose progress is in the file `record`, from which a later call continues.

    A shard has its `ends` and the `whole` input's lines.
    """

    def __init__(
        self,
        record: Path,
        restart: bool,
        ends: Ends | None = None,
        whole: int | None = None,
    ) -> None:
        self._record = record
        self._restart = restart
        self._ends = ends
        self._whole = whole
        # Of the output of earlier calls; None if an earlier version wrote the record.
        self._proof: Any = None

    def _write_record(
        self, consumed: Consumed, output: int, proof: str | int | None = None
    ) -> None:
        """Records how much of the input is done, and how many bytes or parts of `output` it gave.

        `proof` shows later that the output is still the same.
        """
        paths.write_json(
            self._record,
            {
                "format": RECORD_FORMAT,
                "identity": self._identity,
                "output": output,
                "consumed": dataclasses.asdict(consumed),
                "proof": proof,
            },
        )

    def _read_record(self, identity: Mapping[str, Any]) -> tuple[Consumed, int]:
        """How much of the input calls of this identity have done, and how much output that gave.

        Raises OutputError for another identity's record.
        """
        self._identity = dict(identity)
        if self._restart or not paths.exists(self._record):
            return Consumed(), 0
        with paths.document(self._record, "start over with --restart") as record:
            version = record["format"]
            if version != RECORD_FORMAT:
                raise ValueError(f"has format {version}, but this program reads {RECORD_FORMAT}")
            done = Consumed(**record["consumed"])
            output = int(record["output"])
            recorded: dict[str, Any] = dict(record["identity"])
            self._proof = record.get("proof")
        if not done.lines:
            return Consumed(), 0

        # Both as they look after a round trip through JSON.
        current = json.loads(json.dumps(self._identity))
        name = difference(recorded, current)
        if name is not None:
            recorded_value, current_value = (
                repr(settings[name]) if name in settings else "not set"
                for settings in (recorded, current)
            )
            raise OutputError(
                f"{self._record}: was written with {name} {recorded_value}, but now it is "
                f"{current_value}: use the earlier command, or start over with --restart"
            )
        return done, output

    def _write_shard_record(self, path: Path, tally: Tally) -> None:
        """Writes a shard's record, before the shard is at `path`; nothing for other outputs."""
        if self._ends is None:
            return
        path.unlink(missing_ok=True)  # an earlier one: the record isn't its own
        start, stop = self._ends
        paths.write_json(
            record_of(str(path)),
            {
                "identity": self._identity,
                "start": start,
                "stop": stop,
                "whole": self._whole,
                "output": tally.content(),
            },
        )


class FileSink(_Continued):
    """A local file; a shard with its `ends` and the `whole` input's lines. Raises OutputError."""

    _stream: BinaryIO

    def __init__(
        self,
        path: str,
        *,
        restart: bool = False,
        ends: Ends | None = None,
        whole: int | None = None,
    ) -> None:
        super().__init__(Path(f"{path}.part.json"), restart, ends, whole)
        self._tally = Tally()
        self._path = Path(path)
        self._part = Path(f"{path}.part")

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        with contextlib.ExitStack() as failing, output_errors(self._path):
            self._stream = self._opened()
            failing.callback(self.close)
            part_size = os.fstat(self._stream.fileno()).st_size
            if part_size and not self._restart and not self._record.exists():
                raise OutputError(
                    f"{self._part}: exists without its record {self._record.name}: move it away, "
                    "or use --restart"
                )

            done, size = self._read_record(identity)
            if 0 < part_size < size:
                raise OutputError(
                    f"{self._part}: has {part_size:,} bytes, but {self._record.name} says "
                    f"{size:,}; start over with --restart"
                )
            if part_size < size:  # it became FILE, or was taken away
                done, size = Consumed(), 0
            if not done.lines:
                self._write_record(done, 0)

            self._check_unchanged(size)
            self._stream.truncate(size)
            self._stream.seek(size)
            failing.pop_all()
        self.kept = str(self._part)
        return done

    def _check_unchanged(self, size: int) -> None:
        """Reads the first `size` bytes again, from an earlier call, into the tally."""
        self._stream.seek(0)
        for piece in pieces(self._stream, size):
            self._tally.add(piece)
        if size and self._proof not in (None, self._tally.sha256):
            raise OutputError(
                f"{self._part}: its first {size:,} bytes have changed since they were written; "
                "start over with --restart"
            )

    def write(self, data: bytes) -> None:
        with output_errors(self._path, self._part):
            self._stream.write(data)
        self._tally.add(data)

    def commit(self, consumed: Consumed) -> None:
        with output_errors(self._path, self._part):
            # In this order: the record never claims missing output.
            self._force_to_disk()
            self._write_record(consumed, self._tally.size, self._tally.sha256)

    def finish(self) -> None:
        with output_errors(self._path, self._part):
            self._force_to_disk()
            self._write_shard_record(self._path, self._tally)
            os.replace(self._part, self._path)
            self._record.unlink()
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # never opened
            self._stream.close()

    def _force_to_disk(self) -> None:
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def _opened(self) -> BinaryIO:
        """FILE.part, which no other process has open for writing."""
        while True:
            stream = self._part_file()
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                stream.close()
                raise OutputError(f"{self._part}: another process is writing it") from error
            except OSError:
                pass  # a file system without locks
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(stream.fileno()), self._part.stat()):
                    return stream
            stream.close()  # another process just finished it

    def _part_file(self) -> BinaryIO:
        try:
            descriptor = open_in_place(self._part, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EINVAL):  # a link or a FIFO
                raise OutputError(f"{self._part}: cannot be written: {error.strerror}") from error
            raise
        return open(descriptor, "a+b")


class BucketSink(_Continued):
    """An object in a bucket, which another machine can continue. Raises OutputError.

    FILE.part/ has the parts and the record, state.json. Two calls must not write the same FILE.
    """

    def __init__(
        self,
        path: str,
        *,
        restart: bool = False,
        ends: Ends | None = None,
        whole: int | None = None,
    ) -> None:
        with output_errors(Path(path)):
            self._path = paths.as_path(path)
            self._folder = paths.as_path(f"{path}.part")
        super().__init__(self._folder / "state.json", restart, ends, whole)
        # Bytes uploaded; None if an earlier version, which counted none, began.
        self._size: int | None = 0
        self._last = time.monotonic()
        self._waiting = bytearray()  # output that is not uploaded
        self._committed = 0  # its first bytes, which belong to `_consumed`
        self._consumed = Consumed()

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        with output_errors(self._path):
            self._uploaded, self._parts = self._read_record(identity)
            if self._parts and not paths.exists(self._part(0)):  # was taken away
                self._uploaded, self._parts = Consumed(), 0
            self._size = self._proof if self._uploaded.lines else 0
            if not self._uploaded.lines:
                self._write_record(Consumed(), 0, 0)
        self.kept = str(self._folder)
        return self._uploaded

    def write(self, data: bytes) -> None:
        self._waiting += data

    def commit(self, consumed: Consumed) -> None:
        self._consumed = consumed
        self._committed = len(self._waiting)
        if len(self._waiting) >= UPLOAD_BYTES or time.monotonic() - self._last >= UPLOAD_EVERY:
            self._upload()

    def finish(self) -> None:
        self._upload()
        joined = self._folder / "whole"
        with output_errors(self._path, self._folder):
            tally = self._join_parts(joined)
            if self._size not in (None, tally.size):
                raise OutputError(
                    f"{self._folder}: its parts have {tally.size:,} bytes, but {self._size:,} were "
                    "written; start over with --restart"
                )
            self._write_shard_record(self._path, tally)
            joined.replace(self._path)
        with output_errors(self._folder, self._folder):
            self._remove_parts()
        self.kept = ""

    def _join_parts(self, joined: Path) -> Tally:
        tally = Tally()
        with joined.open("wb") as output:
            for number in range(self._parts):
                with self._part(number).open("rb") as stream:
                    for piece in pieces(stream):
                        tally.add(piece)
                        output.write(piece)
        return tally

    def _remove_parts(self) -> None:
        # As listed, since a call before --restart may have had more; the record first, without
        # which no later call continues.
        listed = sorted(self._folder.iterdir())
        parts = [path for path in listed if re.fullmatch(r"\d{8,}|whole", path.name)]
        for path in (self._record, *parts):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Uploads committed output, unless the output is finished."""
        if self.kept:
            self._upload()

    def _upload(self) -> None:
        """Uploads committed output as the next part."""
        if self._consumed != self._uploaded and self._consumed.lines:
            path = self._part(self._parts)
            with output_errors(path, self._folder):
                path.write_bytes(bytes(self._waiting[: self._committed]))
                self._uploaded = self._consumed
                self._parts += 1
                if self._size is not None:
                    self._size += self._committed
                self._write_record(self._uploaded, self._parts, self._size)
            del self._waiting[: self._committed]
            self._committed = 0
        self._last = time.monotonic()

    def _part(self, number: int) -> Path:
        return self._folder / f"{number:08}"


class ShardedSink(_Continued):
    """Several outputs in order; shard n takes the input up to line `stops[n]`.

    `open_shard` gives the sink of each. The record says how many are finished; `check` raises for
    a finished one that has changed since.
    """

    def __init__(
        self,
        record: str,
        stops: Sequence[int],
        open_shard: Callable[[int], Sink],
        *,
        restart: bool = False,
        check: Callable[[int], None] = lambda number: None,
    ) -> None:
        super().__init__(paths.as_path(record), restart)
        self._check = check
        self._stops = stops
        self._open = open_shard
        self._finished = 0
        self._shard = Sink()

    def begin(self, identity: Mapping[str, Any]) -> Consumed:
        shards = f"{len(self._stops)} of {self._stops[-1]:,} lines"
        with output_errors(self._record):
            done, self._finished = self._read_record({**identity, "shards": shards})
        for number in range(self._finished):
            self._check(number)
        return self._continue(done)

    def write(self, data: bytes) -> None:
        self._shard.write(data)

    def commit(self, consumed: Consumed) -> None:
        self._shard.commit(consumed)
        if consumed.lines >= self._stops[self._finished]:
            self._end_shard(consumed)
            self._continue(consumed)

    def finish(self) -> None:
        with output_errors(self._record):
            self._record.unlink(missing_ok=True)
        self.kept = ""

    def close(self) -> None:
        self._shard.close()

    def _continue(self, done: Consumed) -> Consumed:
        """Begins the first shard that isn't finished; the input done up to there."""
        while self._finished < len(self._stops):
            self._shard = self._open(self._finished)
            shard_done = self._shard.begin(self._identity)
            done = max(shard_done, done, key=lambda consumed: consumed.lines)
            self.kept = self._shard.kept
            if done.lines < self._stops[self._finished]:
                break
            self._end_shard(done)
        return done

    def _end_shard(self, done: Consumed) -> None:
        self._shard.finish()
        self._finished += 1
        with output_errors(self._record):
            self._write_record(done, self._finished)
