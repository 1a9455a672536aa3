"""Which of a cache's folders are in use, and removing those that nothing has used for long.

Whoever uses a folder holds a shared lock on it until its process ends, however it ends, and notes
the time. Only one that is neither locked nor used within `UNUSED_DAYS` is removed, when another is
made. Where a file system has no locks, the time alone protects.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

UNUSED_DAYS = 30
_LOGGER = logging.getLogger(__name__)
# Descriptors of locked folders, for as long as the process lives.
_HELD: dict[Path, int] = {}


def use(folder: Path) -> bool:
    """Keeps a folder from being removed while this process lives; False if it is not there."""
    try:
        # Not handed on to worker processes; closed at this one's end.
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    # It may have been removed, and even made anew, while this waited for the lock.
    try:
        same = os.path.samestat(os.fstat(descriptor), folder.stat())
    except OSError:
        same = False
    if not same:
        os.close(descriptor)
        return False
    _release(folder)
    _HELD[folder] = descriptor
    with contextlib.suppress(OSError):
        os.utime(folder)
    return True


def remove(folder: Path) -> None:
    """Removes a folder whose contents are not what they should be, in use here or not.

    What other processes have mapped stays theirs. Raises OSError.
    """
    _release(folder)
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.removed")
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, aside)
        shutil.rmtree(aside)


def remove_unused(cache: Path) -> None:
    """Removes what lies in the cache's rooms and was not used for `UNUSED_DAYS`, if it can."""
    removed = 0
    for folder in _entries(cache):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > UNUSED_DAYS * 86_400:
                removed += _remove_if_free(folder)
    if removed:
        _LOGGER.warning(
            "%s: removed %d folders that nothing has used for %d days", cache, removed, UNUSED_DAYS
        )


def _entries(cache: Path) -> Iterator[Path]:
    for room in ("folders", "preparing"):
        with contextlib.suppress(OSError):
            yield from list((cache / room).iterdir())


def _remove_if_free(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _without_locks():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(folder)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _without_locks() -> Iterator[None]:
    """Goes on where the file system has no locks, not where another process has this one."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError:
        pass


def _release(folder: Path) -> None:
    descriptor = _HELD.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)
