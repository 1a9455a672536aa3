"""A folder that appears under its name when it is complete and proven, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from flaxformer_mt.export.errors import ExportError


@contextlib.contextmanager
def appearing(destination: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a folder beside `destination`, which becomes it at the end; after an error it is gone.

    Raises ExportError where something is there already or nothing can be written.
    """
    place = Path(destination)
    if "://" in str(destination):
        raise ExportError(f"{destination}: is no local folder; write to one and copy it from there")
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ExportError(f"{place}: is there already; name another folder, or remove it")
    aside = place.with_name(f".{place.name}.{os.getpid()}.partial")
    try:
        aside.mkdir(parents=True)
    except OSError as error:
        raise ExportError(f"{place}: cannot be written: {error.strerror or error}") from error
    try:
        yield aside
        os.replace(aside, place)
    except OSError as error:
        raise ExportError(
            f"{error.filename or place}: cannot be written: {error.strerror or error}"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
