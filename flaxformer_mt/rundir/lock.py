"""One training at a time on a run directory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import warnings
from collections.abc import Iterator

from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import is_remote
from flaxformer_mt.rundir.remote_lock import Holding, remotely_locked


@contextlib.contextmanager
def locked(run: RunDirectory) -> Iterator[Holding]:
    """Holds the run for this process; a second holder gets RunDirectoryError naming the first.

    The kernel ends the lock with its process, however that dies, so a lock file left behind is
    harmless. On a file system without locks a warning says that nothing guards the run. For a run
    in a bucket see `remote_lock`.
    """
    if is_remote(run.path):
        with remotely_locked(run) as holding:
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
                raise RunDirectoryError(
                    f"{run}: {_holder(descriptor)} is training on it; wait for it, stop it, or "
                    "choose another directory"
                ) from error
            warnings.warn(
                f"{run}: this file system has no locks ({error.strerror}); "
                "make sure that nothing else trains on it",
                stacklevel=3,
            )
        holder = {"pid": os.getpid(), "host": socket.gethostname()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode() + b"\n", 0)
        yield Holding()
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError, OSError):
        # Read between its creation and the holder's writing.
        return "another process"
