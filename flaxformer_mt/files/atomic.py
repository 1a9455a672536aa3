"""The only place that writes aside and renames: a name has the old content or the new."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path, *, aside: Path | None = None) -> Iterator[Path]:
    """Where to make the local file or folder that becomes `path` when the block ends.

    It is forced to disk first. A folder can only replace an empty one. After an error nothing is
    left; a killed process leaves a place named for it, or `aside`, which is cleared first.
    """
    if aside is None:
        aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _remove(aside)
        yield aside
        for made in (*(aside.rglob("*") if aside.is_dir() else ()), aside):
            _force_to_disk(made)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(aside)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Writes a local file, whole or not at all. Raises OSError."""
    with replacing(path) as place:
        place.write_bytes(content)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _force_to_disk(path: Path) -> None:
    if path.is_symlink():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
