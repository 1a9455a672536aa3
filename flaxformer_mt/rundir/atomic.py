"""Files that are either the old ones or the new ones, never a half.

Of several processes of a run only the first writes: what is written here is common to all.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.paths import asking, is_primary, is_remote


def write_json(path: Path, content: Any) -> None:
    """Writes `content`, whole or not at all.

    Raises RunDirectoryError if the content is not plain JSON or the file cannot be written.
    """
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    except (TypeError, ValueError) as error:
        raise RunDirectoryError(f"{path}: the content is not plain JSON: {error}") from error
    write_text(path, text)


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text beside `path`, forces it to disk, then renames it into place.

    In a bucket it replaces the object, which is whole at any time. Raises RunDirectoryError if it
    cannot be written.
    """
    if not is_primary():
        return
    if is_remote(path):
        asking(path, "written", lambda: path.write_bytes(text.encode("utf-8")))
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(aside, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise RunDirectoryError(f"{path}: cannot be written: {error.strerror or error}") from error


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
    """The content of `path`. Raises RunDirectoryError naming the line of a syntax error."""
    try:
        data = asking(path, "read", path.read_bytes) if is_remote(path) else path.read_bytes()
        return json.loads(data.decode("utf-8"))
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RunDirectoryError(f"{path}: is not UTF-8 text: {error}") from error
    except json.JSONDecodeError as error:
        raise RunDirectoryError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from error
