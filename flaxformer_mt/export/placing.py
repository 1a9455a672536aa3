"""A folder that appears under its name when it is complete and proven, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

from flaxformer_mt.export.errors import ExportError


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
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(mkdtemp(prefix=f".{place.name}.", suffix=".partial", dir=place.parent))
    except OSError as error:
        raise ExportError(f"{place}: cannot be written: {error.strerror or error}") from error
    with _ended_by_sigterm():
        try:
            # Within, since a temporary folder is for this user's eyes alone.
            (folder := aside / place.name).mkdir()
            yield folder
            _force_to_disk(folder)
            os.replace(folder, place)
        except OSError as error:
            raise ExportError(
                f"{error.filename or place}: cannot be written: {error.strerror or error}"
            ) from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _force_to_disk(folder: Path) -> None:
    """All of a folder, before it has its name: a machine that fails later leaves no empty files."""
    for path in (*folder.rglob("*"), folder):
        if path.is_symlink():
            continue
        place = os.open(path, os.O_RDONLY)
        try:
            os.fsync(place)
        finally:
            os.close(place)


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
