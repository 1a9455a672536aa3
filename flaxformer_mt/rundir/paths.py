"""Local paths, and `gs://` ones that have the same methods.

A local path is a `pathlib.Path` and nothing else about it changes. A path in a bucket is an
`etils.epath.Path`; annotations say `Path` for both. In a bucket an object appears whole or not at
all, nothing can be appended to, and folders are but parts of names: they cannot be made, are there
as long as an object is below them, and cannot be renamed at one stroke. Whatever is built on
`is_remote` says what it does instead.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from flaxformer_mt.files.buckets import StorageError, bucket_path, local_path
from flaxformer_mt.rundir.errors import RunDirectoryError, WorkdirError

T = TypeVar("T")


def as_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a local file or folder, or the one in a bucket for `gs://...`.

    Raises WorkdirError for an empty path, for another kind of address, and for a bucket where the
    libraries that reach it are not installed.
    """
    if not os.fspath(path):
        raise WorkdirError("'' is not a path: name it, or write . for the current directory")
    # pathlib makes one slash of two, so that an address which went through it reads `gs:/`.
    if match := re.match(r"([a-zA-Z][a-zA-Z0-9+.-]+):/(/?)", text := os.fspath(path)):
        if match[2] or isinstance(path, Path):
            return _in_bucket(match[1], text[match.end() :])
    # Absolute, since Orbax demands it and a later chdir must not move the run.
    try:
        return Path(os.path.abspath(local_path(path)))
    except StorageError as error:
        raise WorkdirError(str(error)) from error


def is_remote(path: os.PathLike[str]) -> bool:
    """Whether the path, one that `as_path` made, lies in an object store."""
    return not isinstance(path, Path)


def is_primary() -> bool:
    """Whether this process writes what all processes of a run share: it is alone, or the first."""
    jax = sys.modules.get("jax")  # one that never imported it is no member of several
    return jax is None or not jax.distributed.is_initialized() or jax.process_index() == 0


def exists(path: Path) -> bool:
    """`path.exists()`; RunDirectoryError if the store does not say."""
    return asking(path, "reached", path.exists) if is_remote(path) else path.exists()


def asking(path: Path, verb: str, action: Callable[[], T]) -> T:
    """What `action` on a bucket returns; whatever it raises becomes "PATH: cannot be VERB: ...".

    A FileNotFoundError passes: it is an answer.
    """
    try:
        return action()
    except (FileNotFoundError, RunDirectoryError):
        raise
    except Exception as error:  # Clients raise their own, aiohttp's and google.auth's errors.
        raise RunDirectoryError(f"{path}: cannot be {verb}: {reason(error)}") from error


def persistently(action: Callable[[], T], *, waits: tuple[float, ...] = (1, 4, 16)) -> T:
    """What `action` returns, tried again after each of `waits` seconds.

    The clients repeat requests themselves; this is for what outlasts that.
    """
    for wait in waits:
        try:
            return action()
        except Exception:
            time.sleep(wait)
    return action()


def reason(error: BaseException) -> str:
    """An error of a store's client in one line."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, OSError) and text else f"{type(error).__name__}: {text}"


def _in_bucket(scheme: str, rest: str) -> Any:
    bucket, _, name = rest.strip("/").partition("/")
    if scheme != "gs":
        raise WorkdirError(
            f"{scheme}://{rest}: is neither a local path nor one in a bucket, gs://BUCKET/FOLDER"
        )
    if not bucket or not name:
        raise WorkdirError(f"gs://{rest}: name a folder in a bucket: gs://BUCKET/FOLDER")
    missing = [name for name in ("gcsfs", "google.cloud.storage") if not _installed(name)]
    if missing:
        raise WorkdirError(
            f"gs://{rest}: {' and '.join(missing)} not installed; to use buckets: "
            "pip install 'flaxformer-mt[gcs]'"
        )
    return bucket_path(f"gs://{bucket}/{name}")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package
        return False
