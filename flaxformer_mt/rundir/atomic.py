"""Files that are either the old ones or the new ones, never a half.

Of several processes of a run only the first writes: what is written here is common to all.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from flaxformer_mt.files.atomic import replacing, write_whole
from flaxformer_mt.files.reading import JsonError, parse_json, read_file
from flaxformer_mt.rundir.errors import RunDirectoryError, WorkdirError
from flaxformer_mt.rundir.paths import asking, is_primary, is_remote


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
    with _explained(path):
        write_whole(path, content, aside=aside)


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
    with _explained(path), replacing(path) as place:
        with open(place, "w", encoding="utf-8", newline="") as file:
            yield file


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be written: {error.strerror or error}") from error
