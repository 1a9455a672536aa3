"""Runs in a bucket that this machine plays: `bucket` gives a test one of its own."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
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
def _playing() -> Any:
    """The one of this process: the clients read where it is when they are first used.

    Every module that imports `gcs` has a session's fixture of its own.
    """
    from tests.rundir.fake_gcs import FakeGcs

    server = FakeGcs().__enter__()
    atexit.register(server.__exit__, None, None, None)
    return server


@pytest.fixture(scope="session")
def gcs() -> Iterator:
    server = _playing()
    before = {name: os.environ.get(name) for name in server.environment()}
    os.environ.update(server.environment())
    yield server
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def bucket(gcs, tmp_path, monkeypatch) -> Iterator[str]:
    """The name of an empty bucket; the cache is a folder of the test's."""
    monkeypatch.setenv("FLAXFORMER_CACHE", str(tmp_path / "cache"))
    yield f"bucket-{next(_COUNT)}"
    gcs.fault = lambda method, name: None


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
