"""Files that are either the old ones or the new ones, never a half.

Of several processes of a run only the first writes: what is written here is common to all.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from flaxformer_mt.rundir.errors import RunDirectoryError, WorkdirError
from flaxformer_mt.rundir.paths import asking, is_primary, is_remote
from flaxformer_mt.storage.files import JsonError, parse_json, read_file


def write_json(path: Path, content: Any, *, aside: Path | None = None) -> None:
    """Writes `content`, whole or not at all; `aside` as in `write_text`.

    Raises RunDirectoryError if the content is not plain JSON or the file cannot be written.
    """
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    except (TypeError, ValueError) as error:
        raise RunDirectoryError(f"{path}: the content is not plain JSON: {error}") from error
    write_text(path, text, aside=aside)


def write_text(path: Path, text: str, *, aside: Path | None = None) -> None:
    """Writes UTF-8 text as `write_bytes` does. Raises RunDirectoryError."""
    write_bytes(path, text.encode("utf-8"), aside=aside)


def write_bytes(path: Path, content: bytes, *, aside: Path | None = None) -> None:
    """Writes `content` beside `path`, forces it to disk, then renames it into place.

    A process that is killed meanwhile leaves the file beside it, which is named for the process:
    several may write at once. Whoever knows that none does can name one, `aside`, that is found
    again. In a bucket the object is replaced, which is whole at any time.

    Raises RunDirectoryError if it cannot be written.
    """
    if not is_primary():
        return
    if is_remote(path):
        asking(path, "written", lambda: path.write_bytes(content))
        return
    with _replacing(path, aside) as place, open(place, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def remove_file(path: Path) -> None:
    """Removes the file, if it is there. Raises RunDirectoryError if that is refused."""
    if not is_primary():
        return
    try:
        if is_remote(path):
            asking(path, "removed", path.unlink)
        else:
            path.unlink()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be removed: {error.strerror or error}") from error


def read_json(path: Path) -> Any:
    """The content of `path`. Raises RunDirectoryError, and WorkdirError where it is not JSON."""
    try:
        data = asking(path, "read", path.read_bytes) if is_remote(path) else read_file(path)
        return parse_json(data, path)
    except JsonError as error:
        raise WorkdirError(str(error)) from error
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be read: {error.strerror or error}") from error


@contextlib.contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """A local UTF-8 file of any size that appears at the end of the block, whole or not at all.

    Raises RunDirectoryError if it cannot be written.
    """
    if is_remote(path):
        raise RunDirectoryError(f"{path}: is in a bucket; write a local file and copy it there")
    with _replacing(path) as place, open(place, "w", encoding="utf-8", newline="") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _replacing(path: Path, aside: Path | None = None) -> Iterator[Path]:
    """Where to write what takes the place of `path` at the end; nothing is left there."""
    if aside is None:
        aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield aside
        os.replace(aside, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        if not isinstance(error, OSError):
            raise
        raise RunDirectoryError(f"{path}: cannot be written: {error.strerror or error}") from error
