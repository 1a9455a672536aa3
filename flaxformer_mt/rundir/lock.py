"""One that writes at a time on a run directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import warnings
from collections.abc import Iterator
from typing import Any

from flaxformer_mt.files.reading import parse_json
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import is_remote
from flaxformer_mt.rundir.remote_lock import Holding, remotely_locked, taken


@contextlib.contextmanager
def locked(run: RunDirectory, doing: str) -> Iterator[Holding]:
    """Holds the run for this process; a second holder gets RunDirectoryError naming the first.

    `doing` is what a second one is told that this one does, such as "training on it".
    The kernel ends the lock with its process, however that dies, so a lock file left behind is
    harmless. On a file system without locks a warning says that nothing guards the run. For a run
    in a bucket see `remote_lock`.
    """
    if is_remote(run.path):
        with remotely_locked(run, doing) as holding:
            yield holding
        return
    try:
        descriptor = os.open(run.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunDirectoryError(
            f"{run.lock_file}: cannot be opened: {error.strerror or error}"
        ) from error
    try:
        # flock rather than POSIX record locks: those do not exclude a second holder in the same
        # process, and end when any library closes the file.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise taken(run, _holder(run, descriptor)) from error
            warnings.warn(
                f"{run}: this file system has no locks ({error.strerror}); "
                "make sure that nothing else writes to it",
                stacklevel=3,
            )
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "doing": doing}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode() + b"\n", 0)
        yield Holding()
    finally:
        os.close(descriptor)


def _holder(run: RunDirectory, descriptor: int) -> dict[str, Any]:
    try:
        holder = parse_json(os.pread(descriptor, 4096, 0), run.lock_file)
    except (ValueError, OSError):
        # Read between its creation and the holder's writing.
        return {}
    return holder if isinstance(holder, dict) else {}
