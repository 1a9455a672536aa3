"""The only place that writes aside and renames: a name has the old content or the new."""

import contextlib
import ctypes
import errno
import functools
import hashlib
import logging
import os
import re
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

_LOGGER = logging.getLogger(__name__)
# Of <fcntl.h> and <linux/fs.h>.
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextlib.contextmanager
def replacing(path: Path, *, aside: Path | None = None) -> Iterator[Path]:
    """Yields a place for the local file or folder that becomes `path` when the block ends.

    It is forced to disk first. A folder can only replace an empty one. After an error nothing is
    left. A killed process leaves the place, whose name has the process's number: the next process
    removes or reports it. With `aside` the place is that path, which is cleared first.
    """
    if aside is None:
        _left_aside.cache_clear()
        remove_orphans(path)
        aside = _aside(path)
    try:
        _remove(aside)
        yield aside
        for path_inside in aside.rglob("*") if aside.is_dir() else ():
            _force_to_disk(path_inside)
        _force_to_disk(aside)
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(aside)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Writes a local file, whole or not at all. Raises OSError."""
    remove_orphans(path)
    with replacing(path, aside=_aside(path)) as place:
        place.write_bytes(content)


def open_in_place(path: Path, flags: int, mode: int = 0o666) -> int:
    """The descriptor of a regular file that is to be changed where it is.

    Raises OSError, also for a symbolic link, whose target is somebody else's, and for a FIFO or a
    device.
    """
    # Opening a FIFO would otherwise wait for its reader.
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, mode)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise OSError(
                errno.ELOOP,
                "is a symbolic link, whose target would be overwritten: remove the link",
                str(path),
            ) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def exchange(first: Path, second: Path) -> None:
    """Swaps two local files or folders at once. Raises OSError, also where the system can't."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Linux
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    names = _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second)
    if rename(*names, _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(first), None, str(second))


def remove_orphans(path: Path) -> None:
    """Removes files and folders that killed processes of this machine have left beside `path`.

    Each is logged. One that may belong to a living process stays: those of another machine or
    another container, whose processes can't be seen from here, are only logged.
    """
    for orphan in _left_aside(path.parent).pop(path.name, ()):
        _, process, table = _parsed(orphan)
        # An earlier version's name has no table: one with this process's number isn't in use.
        is_reused = table is None and process == os.getpid()
        if table in (None, _process_table()) and _is_alive(process) and not is_reused:
            continue

        if table == _process_table() or is_reused:
            _LOGGER.warning("%s: left by process %s, now gone; removing it", orphan, process)
            with contextlib.suppress(OSError):  # removed by another process, or not to be removed
                _remove(orphan)
        else:
            _LOGGER.warning(
                "%s: left by process %s, of another machine or before a restart; delete it "
                "unless that process is still running",
                orphan,
                process,
            )


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{_process_table()}.tmp")


@functools.cache  # for small files once a process is enough: their folders may be large
def _left_aside(folder: Path) -> dict[str, list[Path]]:
    """The files and folders written aside in a folder, by the name that they are for."""
    by_name: dict[str, list[Path]] = {}
    with contextlib.suppress(OSError):  # no such folder: writing will say so
        for path in folder.iterdir():
            if path.name.startswith(".") and path.name.endswith(".tmp"):
                with contextlib.suppress(ValueError):
                    name, _, _ = _parsed(path)
                    by_name.setdefault(name, []).append(path)
    return by_name


def _parsed(aside: Path) -> tuple[str, int, str | None]:
    """A name, and the process that writes it aside, with its table. Raises ValueError."""
    match = re.fullmatch(r"\.(.+)\.(\d+)(?:-([0-9a-f]{8}))?\.tmp", aside.name, re.DOTALL)
    if match is None:
        raise ValueError(f"{aside}: is nothing written aside")
    name, process, table = match.groups()
    return name, int(process), table


@functools.cache
def _process_table() -> str:
    """A name for the set of processes that share this one's numbering.

    It changes when a machine restarts, and each container has its own.
    """
    known = [socket.gethostname()]
    with contextlib.suppress(OSError):
        known.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        known.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:8]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


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
