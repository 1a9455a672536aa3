"""Paths here and in object stores; reading whole files and JSON with errors that name the place."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from flaxformer_mt.errors import UserError

if TYPE_CHECKING:
    from etils import epath

AnyPath: TypeAlias = "Path | epath.Path"  # local, or in an object store (gs://...)

# The stores of etils' epath, and fsspec's names for them.
_SCHEMES = ("gs://", "s3://", "az://", "hf://")
_PROTOCOLS = ("gcs", "gs", "s3", "az", "abfs", "hf")


class StorageError(UserError):
    """A path that can't be made."""


def local_path(text: str | os.PathLike[str]) -> Path:
    """A local path; `~` is the home. Raises StorageError for an unknown user's."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise StorageError(f"{os.fspath(text)}: no such user: write the path in full") from error


def bucket_path(address: str) -> epath.Path:
    """The path of `gs://BUCKET/NAME`, or of another store's address. Raises StorageError.

    Turns off fsspec's cache of listings, which would hide what others write, unless configured.
    """
    if not address.startswith(_SCHEMES):
        stores = ", ".join(_SCHEMES)
        raise StorageError(f"{address}: is neither a local path nor in a store ({stores})")
    import fsspec.config
    from etils import epath

    for protocol in _PROTOCOLS:
        fsspec.config.conf.setdefault(protocol, {}).setdefault("use_listings_cache", False)
    return epath.Path(address)


class JsonError(UserError):
    """A file or line that isn't usable JSON; the message begins with its place."""


def regular_size(path: Path) -> int:
    """Bytes of a local file. Raises OSError, also for a folder, a FIFO or a device."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return status.st_size


def read_file(path: Path) -> bytes:
    """The bytes of a regular file or an object. Raises OSError."""
    if isinstance(path, Path):
        regular_size(path)
    return path.read_bytes()


def read_text(path: Path, error: type[UserError]) -> str:
    """The text of a UTF-8 file, without a byte order mark. Raises `error`, which names the file."""
    try:
        return read_file(path).decode("utf-8-sig")
    except OSError as cause:
        raise error(f"{path}: cannot be read: {cause.strerror}") from cause
    except UnicodeDecodeError as cause:
        raise error(f"{path}: is not UTF-8 text (byte {cause.start + 1})") from cause


def load_json(path: Path) -> Any:
    """The value in a file or an object. Raises OSError and JsonError."""
    return parse_json(read_file(path), path)


@contextlib.contextmanager
def json_errors_as(error: type[UserError], path: Path, advice: str) -> Iterator[None]:
    """Raises `error` if the JSON file `path` can't be read or used, mostly with `advice`."""
    try:
        yield
    except JsonError as cause:
        raise error(f"{cause}{advice}") from cause
    except FileNotFoundError as cause:
        place = cause.filename or path
        raise error(f"{place}: cannot be read: {cause.strerror}{advice}") from cause
    except OSError as cause:
        place = cause.filename or path
        raise error(f"{place}: cannot be read: {cause.strerror}") from cause
    except UserError:
        raise
    except (KeyError, TypeError, ValueError) as cause:
        raise error(f"{path}: is damaged: {cause!r}{advice}") from cause


def parse_json(data: bytes, path: Path, line: int | None = None) -> Any:
    """The value of `data`, all of the file `path` or its `line`. Raises JsonError."""
    try:
        # Some editors begin a file with a byte order mark.
        value = json.loads(data.decode("utf-8-sig"))
        # Python decodes lone surrogates, which nothing can write.
        if b"\\ud" in data.lower():
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        number = error.lineno if line is None else line
        raise JsonError(f"{path}:{number}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # other than UTF-8, huge numbers or depths
        place = path if line is None else f"{path}:{line}"
        raise JsonError(f"{place}: is not JSON: {error}") from None
