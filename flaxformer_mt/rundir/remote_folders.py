"""Removing and replacing checkpoints in a bucket, where each object comes and goes on its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

# What Orbax writes last into a checkpoint in a bucket: without it there is none.
COMMITTED = "commit_success.txt"


def remove(folder: Path) -> None:
    """Removes a checkpoint, the sign that it is complete first."""
    (folder / COMMITTED).unlink(missing_ok=True)
    folder.rmtree(missing_ok=True)  # type: ignore[attr-defined]


def replace(place: Path, source: Path) -> None:
    """Moves the checkpoint `source` to `place`, in place of what is there.

    Whenever it is interrupted, `place` is the one of before, none, or the new one, and `source` is
    kept until that is complete.
    """
    remove(place)
    for path in files_below(source):
        name = path.relative_to(source)
        if str(name) != COMMITTED:
            copy(path, place / name)
    copy(source / COMMITTED, place / COMMITTED)
    remove(source)


def files_below(folder: Path) -> Iterator[Path]:
    """Every file in a local folder or a bucket's, in order."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from files_below(path)
        else:
            yield path


def copy(source: Path, target: Path) -> None:
    """Copies a file, to or from a bucket or within one, in pieces; an object appears whole."""
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 23)
