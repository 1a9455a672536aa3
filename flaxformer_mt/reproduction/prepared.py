"""Vocabularies and token stores that rows share: prepared once, by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from flaxformer_mt.config import DataConfig
from flaxformer_mt.data.prepare import prepare
from flaxformer_mt.data.prepare.manifest import settings_of
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory

Say = Callable[[str], None]


def take_prepared(
    run: RunDirectory, data: DataConfig, *, seed: int, folder: Path, say: Say
) -> None:
    """Gives a run its vocabulary and token store.

    They are made in a folder below `folder`, once for all rows that differ in the model alone, and
    shared by hard links. While another process makes them this one waits. Raises what
    `data.prepare.prepare` does, and RunDirectoryError.
    """
    places = [(c.src, c.tgt, c.path, c.split) for c in (*data.train, data.valid)]
    content = json.dumps([settings_of(data, seed), places, data.folder], sort_keys=True)
    place = folder / hashlib.sha256(content.encode()).hexdigest()[:16]
    with alone_in(place, say):
        prepare(data, seed=seed, directory=place, report=say, bar=sys.stderr.isatty())
    for name in ("vocabulary", "data"):
        _take(place / name, run.path / name)


@contextlib.contextmanager
def alone_in(place: Path, say: Say) -> Iterator[None]:
    """Makes the folder `place` and holds it: the kernel lets go of it, however this process dies.

    While another process holds it this one waits. Raises RunDirectoryError.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunDirectoryError(f"{place}: cannot be written: {error.strerror}") from error
    path = place / "lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be opened: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{place}: another process prepares the same text; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            say(
                f"warning: {place}: this file system has no locks ({error.strerror}); make sure "
                "that nothing else prepares the same text"
            )
        yield
    finally:
        os.close(descriptor)


def _take(source: Path, target: Path) -> None:
    """`source` under another name as well, its files shared: nothing writes to them again."""
    if target.exists():
        return
    aside = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, aside, copy_function=_link)
        os.replace(aside, target)
    except OSError as error:
        raise RunDirectoryError(f"{target}: cannot be written: {error.strerror}") from error


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
