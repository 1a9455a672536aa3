"""Reading whole files and JSON; whatever is wrong with JSON is one error with file and line."""

from __future__ import annotations

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
    place = str(path) if line is None else f"{path}:{line}"
    try:
        value = json.loads(data.decode("utf-8"))
        # Python decodes half a character (a lone surrogate), which nothing can write or print.
        if b"\\ud" in data.lower():
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"byte 0x{data[error.start]:02X} at byte {error.start + 1}"
        raise JsonError(f"{place}: is not UTF-8 text ({byte})") from None
    except UnicodeEncodeError as error:
        half = f"U+{ord(error.object[error.start]):04X}"
        raise JsonError(f"{place}: has half a character, {half}, in a text") from None
    except json.JSONDecodeError as error:
        number = error.lineno if line is None else line
        raise JsonError(f"{path}:{number}: is not JSON: {error.msg}") from None
    except RecursionError:
        raise JsonError(f"{place}: is nested too deeply") from None
    except ValueError:
        raise JsonError(f"{place}: has a number with too many digits") from None
    return value
