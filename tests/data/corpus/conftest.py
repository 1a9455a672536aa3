"""An object store in memory, behind the real fsspec and epath, and shards of records."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from etils.epath import backend
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry


class Bucket(MemoryFileSystem):
    """Cloud Storage's stand-in: its protocols, and names without a slash before the bucket."""

    protocol = ("gcs", "gs")
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return super()._strip_protocol(str(path).removeprefix("gs://").removeprefix("gcs://"))

    def glob(self, path: Any, **options: Any) -> list[str]:
        return [name.removeprefix("/") for name in super().glob(path, **options)]


@pytest.fixture
def bucket(monkeypatch):
    for name in ("gcs", "gs"):
        monkeypatch.setitem(_registry, name, Bucket)
    backend.fsspec_backend._get_filesystem.cache_clear()
    Bucket.store.clear()
    yield backend.fsspec_backend.fs("gs://b/")
    backend.fsspec_backend._get_filesystem.cache_clear()


def write_shard(path: Path, records: list[bytes]) -> None:
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()
