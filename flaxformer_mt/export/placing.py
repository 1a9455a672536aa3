"""A folder that appears under its name when it is complete and proven, or not at all."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

from flaxformer_mt.export.errors import ExportError
from flaxformer_mt.files.atomic import replacing


@contextlib.contextmanager
def appearing(destination: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a folder beside `destination`, which becomes it at the end.

    After an error or SIGTERM, which ends the program with 143, it is gone. Raises ExportError where
    something is there already or nothing can be written.
    """
    if "://" in str(destination):
        raise ExportError(f"{destination}: is no local folder; write to one and copy it from there")
    place = Path(os.path.abspath(destination))  # "." has no name
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ExportError(f"{place}: is there already; name another folder, or remove it")
    with _ended_by_sigterm():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with replacing(place) as folder:
                folder.mkdir()
                yield folder
        except OSError as error:
            raise ExportError(
                f"{error.filename or place}: cannot be written: {error.strerror or error}"
            ) from error


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM as an exception, after which things are put in order; in the main thread alone."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
