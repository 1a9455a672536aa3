"""Record files in ArrayRecord and TFRecord format, both read without TensorFlow."""

import contextlib
import io
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flaxformer_mt.data.corpus.pairs import CorpusError
from flaxformer_mt.data.corpus.paths import open_binary, reaching
from flaxformer_mt.files.reading import AnyPath

_BLOCK = 1024  # records of an ArrayRecord shard read at a time: one by one is ten times as slow

# One record's limit: a length beyond it is a damaged length.
_TFRECORD_LARGEST = 1 << 30


def read_array_record(path: AnyPath, skip: int = 0, take: int | None = None) -> Iterator[bytes]:
    """`take` records of a shard (None: the rest) after `skip`, in order. Raises CorpusError."""
    try:
        from array_record.python.array_record_module import ArrayRecordReader
    except ImportError as error:
        raise CorpusError(f"{path}: needs the package array-record ({error})") from error
    with _local_copy(path) as local, contextlib.ExitStack() as stack:
        reader = ArrayRecordReader(str(local))
        stack.callback(_close_quietly, reader)
        # A damaged shard opens without complaint: only `ok` tells.
        if not reader.ok():
            raise _damaged(path, 0, _close_quietly(reader) or "not an ArrayRecord file")
        records = reader.num_records()
        end = records if take is None else skip + take
        if end > records:
            raise _damaged(path, records, f"{end:,} records expected")
        for start in range(skip, end, _BLOCK):
            stop = min(start + _BLOCK, end)
            try:
                block = reader.read(start, stop)
            except (RuntimeError, IndexError, ValueError) as error:
                raise _damaged(path, start, str(error)) from error
            if len(block) != stop - start or not reader.ok():
                raise _damaged(path, start, "later records are missing")
            yield from block


def read_tfrecord(path: AnyPath, skip: int = 0, take: int | None = None) -> Iterator[bytes]:
    """As `read_array_record`, of records of length (uint64), checksum, bytes, checksum."""
    from tensorboardX.record_writer import masked_crc32c

    with open_binary(path) as raw:
        # Object stores' files are buffered.
        stream = io.BufferedReader(raw, 1 << 20) if isinstance(raw, io.RawIOBase) else raw
        number = 0
        while take is None or number < skip + take:
            head = stream.read(12)
            if not head and take is None:
                return
            if len(head) < 12:
                raise _damaged(path, number, "the file ends there")
            length, checksum = struct.unpack("<QI", head)
            if masked_crc32c(head[:8]) != checksum or length > _TFRECORD_LARGEST:
                raise _damaged(path, number, "the next record's length is damaged")
            record = stream.read(length + 4)
            if len(record) < length + 4:
                raise _damaged(path, number, "the file ends within the next record")
            number += 1
            if number > skip:
                yield record[:length]


READERS: dict[str, Callable[[AnyPath, int, int | None], Iterator[bytes]]] = {
    "array_record": read_array_record,
    "tfrecord": read_tfrecord,
}


def _damaged(path: AnyPath, count: int, why: str) -> CorpusError:
    return CorpusError(f"{path}: cannot be read beyond record {count:,}: {why}; download it again")


def _close_quietly(reader: Any) -> str:
    """Closes an ArrayRecord reader, which says only then why it failed."""
    try:
        reader.close()
    except RuntimeError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def _local_copy(path: AnyPath) -> Iterator[Path]:
    """The path itself, or a temporary copy: ArrayRecord's reader takes local files only."""
    if isinstance(path, Path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="flaxformer-mt-shard-") as folder:
        local = Path(folder) / path.name
        with reaching(path), open_binary(path) as remote, open(local, "wb") as copy:
            shutil.copyfileobj(remote, copy, 1 << 24)
        yield local
