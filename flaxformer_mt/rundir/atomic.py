"""Files that are either the old ones or the new ones, never a half."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from flaxformer_mt.rundir.errors import RunDirectoryError


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

    Raises RunDirectoryError if it cannot be written.
    """
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


def read_json(path: Path) -> Any:
    """The content of `path`. Raises RunDirectoryError naming the line of a syntax error."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RunDirectoryError(f"{path}: is not UTF-8 text: {error}") from error
    except json.JSONDecodeError as error:
        raise RunDirectoryError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from error
