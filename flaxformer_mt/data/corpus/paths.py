"""Where a corpus's files are: local, or in an object store through etils' epath."""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from flaxformer_mt.data.corpus.pairs import CorpusError
from flaxformer_mt.files.reading import AnyPath, StorageError, bucket_path, local_path


def is_remote(path: AnyPath | str) -> bool:
    return "://" in str(path)


def locate(setting: str, folder: str) -> AnyPath:
    """The path that a setting names, relative to `folder`; `~` is the home. Raises CorpusError."""
    try:
        if is_remote(setting):
            return bucket_path(setting)
        path = local_path(setting)
        if path.is_absolute() or not is_remote(folder):
            return local_path(folder) / path
        return bucket_path(folder) / setting
    except StorageError as error:
        raise CorpusError(str(error)) from error


def require_file(setting: str, folder: str, key: str) -> AnyPath:
    """The existing file that the setting `key` names. Raises CorpusError, also for a pipe."""
    path = locate(setting, folder)
    with reaching(path):
        exists = path.exists()
        if exists and not path.is_dir():
            if isinstance(path, Path) and not path.is_file():
                raise CorpusError(f"{key}: {path} is a pipe or a device: write it to a file")
            return path
    raise CorpusError(
        f"{key}: {path} {'is not a file' if exists else 'does not exist'}; set {key}, "
        f"or data.folder, where relative paths start (now {folder!r})"
    )


def require_matches(pattern: str, folder: str, key: str) -> tuple[AnyPath, ...]:
    """The files that match a glob pattern, by name. Raises CorpusError."""
    located = locate(pattern, folder)
    matches: list[AnyPath]
    with reaching(located):
        if isinstance(located, Path):
            matches = [Path(name) for name in glob.glob(str(locate(pattern, glob.escape(folder))))]
        else:
            store, bucket, *inner = str(located).replace("://", "/").split("/")
            matches = list(bucket_path(f"{store}://{bucket}").glob("/".join(inner)))
        files = [path for path in matches if not path.is_dir()]
        for path in files:
            if isinstance(path, Path) and not path.is_file():
                raise CorpusError(f"{key}: {path} is a pipe or a device: write it to a file")
    if not files:
        raise CorpusError(
            f"{key}: no file matches {located}; set {key}, "
            f"or data.folder, where relative paths start (now {folder!r})"
        )
    return tuple(sorted(files, key=lambda path: (path.name, str(path))))


def open_binary(path: AnyPath) -> BinaryIO:
    """The file's bytes, unbuffered if it is local."""
    with reaching(path):
        if isinstance(path, Path):
            return cast(BinaryIO, open(path, "rb", buffering=0))
        return cast(BinaryIO, path.open("rb"))


def stamp(path: AnyPath) -> tuple[int, int]:
    """Size in bytes and time of change in nanoseconds. Raises CorpusError."""
    with reaching(path):
        if isinstance(path, Path):
            status = path.stat()
            return status.st_size, status.st_mtime_ns
        remote = path.stat()
        return remote.length, int(remote.mtime) * 1_000_000_000


@contextlib.contextmanager
def reaching(path: AnyPath | str) -> Iterator[None]:
    """Turns errors of the system or of a store's client, any exception, into CorpusErrors."""
    try:
        yield
    except CorpusError:
        raise
    except Exception as error:
        if not is_remote(path):
            if not isinstance(error, OSError):
                raise
            raise CorpusError(f"{path}: cannot be read: {error.strerror or error}") from error
        if isinstance(error, ImportError):
            raise CorpusError(
                f"{path}: needs the store's client: "
                f'for gs:// install "flaxformer-mt[gcs]", else the fsspec package ({error})'
            ) from error
        raise CorpusError(f"{path}: refused: {type(error).__name__}: {error}") from error
