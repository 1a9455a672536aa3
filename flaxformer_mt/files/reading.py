"""Reads whole files and JSON; any JSON problem is one error with file and line."""

import contextlib
import errno
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flaxformer_mt.errors import UserError


class JsonError(UserError):
    """A file or a line that is not usable JSON; the message begins with its place."""


def regular_size(path: Path) -> int:
    """Bytes of a local file. Raises OSError, also for a FIFO or a device: reading may never end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return status.st_size


def read_file(path: Path) -> bytes:
    """The bytes of a regular file, here or in a bucket. Raises OSError."""
    if isinstance(path, Path):
        regular_size(path)
    return path.read_bytes()


def load_json(path: Path) -> Any:
    """The value in a file, here or in a bucket. Raises OSError and JsonError."""
    return parse_json(read_file(path), path)


@contextlib.contextmanager
def explained(error: type[UserError], path: Path, advice: str) -> Iterator[None]:
    """Whatever is wrong with the JSON file at `path`, or with what it holds, is an `error`.

    `advice` says how to mend a missing or damaged file; an error of permissions stands alone.
    """
    try:
        yield
    except JsonError as found:
        raise error(f"{found}{advice}") from found
    except OSError as found:
        advice = advice if isinstance(found, FileNotFoundError) else ""
        place = found.filename or path
        raise error(f"{place}: cannot be read: {found.strerror}{advice}") from found
    except (KeyError, TypeError, ValueError) as found:
        if isinstance(found, UserError):
            raise
        raise error(f"{path}: is damaged: {found!r}{advice}") from found


def parse_json(data: bytes, path: Path, line: int | None = None) -> Any:
    """The value that `data` stands for: all of the file `path`, or its line of that number.

    Raises JsonError.
    """
    try:
        value = json.loads(data.decode("utf-8"))
        # Python decodes half a character (a lone surrogate), which nothing can write or print.
        if b"\\ud" in data.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except json.JSONDecodeError as error:
        number = error.lineno if line is None else line
        raise JsonError(f"{path}:{number}: is not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # no UTF-8; numbers or depths beyond all bounds
        place = path if line is None else f"{path}:{line}"
        raise JsonError(f"{place}: is not JSON: {error}") from None
