"""Runs in a bucket that this machine plays: `bucket` gives a test one of its own."""

import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flaxformer_mt.rundir.layout import RunDirectory, create

MISSING = [name for name in ("gcsfs", "google_crc32c") if importlib.util.find_spec(name) is None]
needs_clients = pytest.mark.skipif(
    bool(MISSING), reason=f"{' and '.join(MISSING)} not installed: pip install -e '.[gcs]'"
)
_COUNT = iter(range(1 << 30))


@functools.cache
def store_of_process() -> Any:
    """The one fake Cloud Storage: clients read its address when they are first used."""
    from tests.rundir.fake_gcs import FakeGcs

    return FakeGcs()


@pytest.fixture
def gcs(monkeypatch) -> Iterator[Any]:
    server = store_of_process()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield server
    server.allow()


@pytest.fixture
def bucket(gcs, tmp_path, monkeypatch) -> str:
    """The name of an empty bucket; the cache is a folder of the test's."""
    monkeypatch.setenv("FLAXFORMER_CACHE", str(tmp_path / "cache"))
    return f"bucket-{next(_COUNT)}"


@pytest.fixture
def remote(bucket) -> RunDirectory:
    return create(f"gs://{bucket}/runs/one", {"name": "test"}, ["train"])


def fill(folder: Path, index: str) -> Path:
    """A folder such as `vocabulary` or `data`, of several files."""
    (folder / "deeper").mkdir(parents=True)
    (folder / "tokens").write_bytes(bytes(range(256)) * 100)
    (folder / "deeper" / "more").write_text("äöü")
    (folder / index).write_text('{"format": 1}')
    return folder
