"""One that writes at a time on a run directory."""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flaxformer_mt.files.reading import parse_json
from flaxformer_mt.rundir import CheckpointError, RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import asking, is_primary, is_remote, persistently


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


_LOGGER = logging.getLogger(__name__)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")


class Holding:
    """A run's lock while it is held. The kernel's cannot be lost."""

    def check(self) -> None:
        """Raises RunDirectoryError if another process has taken the run over, and CheckpointError
        where that cannot be told now: the next save may tell."""


class RemoteHolding(Holding):
    """A held lock, rewritten every `beat` seconds by a thread."""

    def __init__(self, run: RunDirectory, doing: str, beat: float) -> None:
        self._run, self._doing, self._beat = run, doing, beat
        self._token, self._count = uuid.uuid4().hex, 0
        self._lost_to = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def check(self) -> None:
        # Not what the thread saw last: after a suspended machine wakes up, that is old.
        try:
            persistently(self._look)
        except RunDirectoryError as error:
            raise CheckpointError(
                f"{error}; nothing is saved while nobody can tell whose run it is"
            ) from error
        if self._lost_to:
            raise RunDirectoryError(
                f"{self._run}: {self._lost_to} has taken this run over while the bucket could not "
                "be reached from here; nothing more is written to it"
            )

    def take(self, settle: float) -> None:
        """Writes the lock and makes sure that nobody did at the same time."""
        self._write()
        time.sleep(settle)
        found = self._look()
        if self._lost_to:
            raise taken(self._run, found)
        self._thread.start()

    def release(self) -> None:
        self._ended.set()
        self._thread.join()
        # Left behind, it only makes the next one wait.
        with contextlib.suppress(Exception):
            self._look()
            if not self._lost_to:
                self._run.lock_file.unlink()

    def _keep(self) -> None:
        while not self._ended.wait(self._beat):
            with contextlib.suppress(Exception):  # the next beat makes up for it
                self._look()
                if self._lost_to:
                    return
                self._write()

    def _look(self) -> dict[str, Any]:
        found = read(self._run.lock_file)
        if found is not None and found.get("token") != self._token:
            self._lost_to = name(found)
        return found or {}

    def _write(self) -> None:
        self._count += 1
        content = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "doing": self._doing,
            **_numbering(),
            "token": self._token,
            "count": self._count,
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        data = json.dumps(content).encode()
        path = self._run.lock_file
        asking(path, "written", lambda: path.write_bytes(data))


@contextlib.contextmanager
def remotely_locked(
    run: RunDirectory,
    doing: str,
    *,
    beat: float = 20.0,
    dead_after: float = 90.0,
    settle: float = 2.0,
) -> Iterator[Holding]:
    """Holds the run for this process; another living holder is a RunDirectoryError naming it.

    Of several processes of a run the first holds it for all.
    """
    if not is_primary():
        yield Holding()
        return
    _wait_until_free(run, beat, dead_after)
    holding = RemoteHolding(run, doing, beat)
    holding.take(settle)
    try:
        yield holding
    finally:
        holding.release()


def read(path: Path) -> dict[str, Any] | None:
    """What the lock says, or None if there is none. Raises RunDirectoryError."""
    try:
        found = parse_json(asking(path, "read", path.read_bytes), path)
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def name(found: dict[str, Any]) -> str:
    """A lock's holder, for people."""
    if not {"pid", "host"} <= found.keys():
        return "another process"
    return f"process {found['pid']} on {found['host']}"


def taken(run: RunDirectory, found: dict[str, Any]) -> RunDirectoryError:
    """That a run is held by the one whose lock was `found`; early ones do not say what for."""
    return RunDirectoryError(
        f"{run}: {name(found)} is {found.get('doing', 'working on it')}; wait for it, stop it, or "
        "choose another directory"
    )


def _wait_until_free(run: RunDirectory, beat: float, dead_after: float) -> None:
    first = found = read(run.lock_file)
    if found is not None and not _is_dead_here(found):
        _LOGGER.warning(
            "%s: was taken by %s; waiting up to %.0f s to see whether that is alive",
            run,
            name(found),
            dead_after,
        )
    deadline = time.monotonic() + dead_after
    while found is not None and not _is_dead_here(found) and time.monotonic() < deadline:
        time.sleep(min(beat / 4, dead_after))
        found = read(run.lock_file)
        if found is not None and found != first:
            raise taken(run, found)


def _is_dead_here(found: dict[str, Any]) -> bool:
    """Whether the holder was a process that this one would see if it lived, and does not."""
    pid = found.get("pid")
    here = {"host": socket.gethostname(), **_numbering()}
    if None in here.values() or any(found.get(key) != value for key, value in here.items()):
        return False
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _numbering() -> dict[str, str | None]:
    """What a process's number belongs to: the boot of a machine and a namespace of numbers.

    Containers may share a host name, and even a machine, and each count from 1. None where the
    system does not tell.
    """
    boot = namespace = None
    with contextlib.suppress(OSError):
        boot = _BOOT_ID.read_text().strip()
    with contextlib.suppress(OSError):
        namespace = os.readlink(_PID_NAMESPACE)
    return {"boot": boot, "pid_namespace": namespace}
