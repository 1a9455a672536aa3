"""One writer at a time per run directory.

On a disk the kernel keeps the lock. In a bucket it is an object that names its holder, who rewrites
it every `beat` seconds. Each write and the removal depend on the generation last seen, so one of
several contenders gets it, and a holder that lost it can't write it again. A contender waits: a new
generation means a living holder, the same one for `dead_after` seconds a killed one.
"""

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
from typing import Any

from flaxformer_mt.files.atomic import open_in_place
from flaxformer_mt.files.reading import parse_json
from flaxformer_mt.rundir import CheckpointError, RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import asking, explained, is_primary, is_remote

_LOGGER = logging.getLogger(__name__)


class Holding:
    """A run's lock while it is held. The kernel's can't be lost."""

    def check(self) -> None:
        """Raises RunDirectoryError if another process took the run over, CheckpointError if that is
        unknown."""


@contextlib.contextmanager
def locked(
    run: RunDirectory, doing: str, *, beat: float = 20.0, dead_after: float = 90.0
) -> Iterator[Holding]:
    """Holds the run for this process; another one gets RunDirectoryError, "... is DOING; ...".

    For a run in a bucket the first process holds it for all.
    """
    if not is_remote(run.path):
        with _locked_here(run, doing):
            yield Holding()
    elif not is_primary():
        yield Holding()
    else:
        holding = RemoteHolding(run, doing, beat)
        holding.take(dead_after)
        try:
            yield holding
        finally:
            holding.release()


@contextlib.contextmanager
def _locked_here(run: RunDirectory, doing: str) -> Iterator[None]:
    """The kernel ends the lock with its process. Warns if the file system has no locks."""
    with explained(run.lock_file, "opened"):
        descriptor = open_in_place(run.lock_file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        # flock: POSIX record locks don't exclude this process and end when any library closes it.
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise _taken(run, _parsed(os.pread(descriptor, 4096, 0), run)) from error
            warnings.warn(
                f"{run}: no locks here ({error.strerror}); make sure nothing else writes to the "
                "run",
                stacklevel=5,
            )
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "doing": doing}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode() + b"\n", 0)
        yield
    finally:
        os.close(descriptor)


class RemoteHolding(Holding):
    """A lock in a bucket, rewritten every `beat` seconds by a thread."""

    def __init__(self, run: RunDirectory, doing: str, beat: float) -> None:
        from google.cloud import storage  # takes a second; only buckets need it

        bucket, _, name = str(run.lock_file).removeprefix("gs://").partition("/")
        client = asking(run.lock_file, "reached", lambda: storage.Client(project=None))
        self._blob = client.bucket(bucket).blob(name)
        self._run = run
        self._beat = beat
        self._content = {"pid": os.getpid(), "host": socket.gethostname(), "doing": doing}
        self._content["token"] = uuid.uuid4().hex
        self._generation = 0  # last seen; 0: no lock
        self._lost_to = ""
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def take(self, dead_after: float) -> None:
        """Writes the lock once it is free, or hasn't been rewritten for this many seconds."""
        self._generation, content = self._read()
        deadline = time.monotonic() + dead_after
        if self._generation:
            _LOGGER.warning(
                "%s: in use by %s; waiting up to %.0f s to see whether it is alive",
                self._run,
                _holder(content),
                dead_after,
            )
            while self._generation and time.monotonic() < deadline:
                time.sleep(min(self._beat / 4, dead_after))
                previous = self._generation
                self._generation, content = self._read()
                if self._generation not in (0, previous):
                    raise _taken(self._run, content)

        self._write()
        if self._lost_to:
            _, content = self._read()
            raise _taken(self._run, content)
        self._thread.start()

    def check(self) -> None:
        # By writing: a suspended machine may wake up after the thread's last beat is outdated.
        try:
            self._write()
        except RunDirectoryError as error:
            raise CheckpointError(f"{error}; saving nothing until it can") from error
        if self._lost_to:
            raise RunDirectoryError(
                f"{self._run}: {self._lost_to} took over this run; writing nothing more to it"
            )

    def release(self) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(Exception):  # left behind, it only makes the next one wait
            if not self._lost_to:
                self._blob.delete(if_generation_match=self._generation)

    def _keep(self) -> None:
        """Rewrites the lock at every beat, in the thread."""
        while not self._lost_to and not self._ended.wait(self._beat):
            with contextlib.suppress(RunDirectoryError):  # the next beat makes up for it
                self._write()

    def _write(self) -> None:
        """Writes the lock, or sets `_lost_to` if another process has written it."""
        from google.api_core.exceptions import PreconditionFailed

        with self._writing, explained(self._run.lock_file, "written"):
            while not self._lost_to:
                written_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
                data = json.dumps({**self._content, "time": written_at}).encode()
                try:
                    self._blob.upload_from_string(data, if_generation_match=self._generation)
                except PreconditionFailed:
                    self._generation, content = self._read()
                    # It may be ours, if the answer to a write was lost, or removed.
                    if self._generation and content.get("token") != self._content["token"]:
                        self._lost_to = _holder(content)
                else:
                    self._generation = self._blob.generation
                    return

    def _read(self) -> tuple[int, dict[str, Any]]:
        """The generation of the lock and its content; 0 if there is none."""
        from google.api_core.exceptions import NotFound

        with explained(self._run.lock_file, "read"):
            while (blob := self._blob.bucket.get_blob(self._blob.name)) is not None:
                with contextlib.suppress(NotFound):  # replaced meanwhile
                    return blob.generation, _parsed(blob.download_as_bytes(), self._run)
        return 0, {}


def _parsed(data: bytes, run: RunDirectory) -> dict[str, Any]:
    """The content of a lock, which names its holder; {} if it isn't readable yet."""
    try:
        content = parse_json(data, run.lock_file)
    except ValueError:  # read between its creation and the holder's writing
        return {}
    return content if isinstance(content, dict) else {}


def _holder(content: dict[str, Any]) -> str:
    if not {"pid", "host"} <= content.keys():
        return "another process"
    return f"process {content['pid']} on {content['host']}"


def _taken(run: RunDirectory, content: dict[str, Any]) -> RunDirectoryError:
    return RunDirectoryError(
        f"{run}: {_holder(content)} is {content.get('doing', 'working on it')}; wait for it, or "
        "stop it"
    )
