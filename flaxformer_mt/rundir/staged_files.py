"""Files that grow while a run trains: metrics, TensorBoard's events, samples, goodput, traces.

Objects in a bucket can't be appended to: for a run there, these files grow on this machine and are
uploaded whole, every minute and before each checkpoint, to which a restart rewinds the metrics.
"""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.lock import Holding
from flaxformer_mt.rundir.paths import asking, is_primary, is_remote, reason, remove

INTERVAL = 60.0  # seconds between uploads


class GrowingFiles(RunDirectory):
    """Where a local run's growing files are; nothing to upload."""

    def upload(self) -> None:
        """Brings the bucket up to date; failures are reported, not raised."""


class StagedFiles(GrowingFiles):
    """Growing files on this machine that a thread uploads every `INTERVAL` seconds."""

    def __init__(
        self, run: RunDirectory, folder: Path, say: Callable[[str], None], holding: Holding
    ) -> None:
        super().__init__(folder)
        self._run = run
        self._say = say
        self._holding = holding
        self._sent: dict[Path, tuple[int, int]] = {}  # size and time of change when last uploaded
        self._lock = threading.Lock()
        self._ended = threading.Event()
        for local, remote in ((self.metrics, run.metrics), (self.goodput, run.goodput)):
            with contextlib.suppress(FileNotFoundError):
                local.write_bytes(asking(remote, "read", remote.read_bytes))
                self._sent[local] = _state(local)
        self._thread = threading.Thread(target=self._every_interval, daemon=True)
        self._thread.start()

    def upload(self) -> None:
        try:
            self._upload_changed()
        except Exception as error:
            self._say(f"{self._run}: could not upload metrics, retrying: {reason(error)}")

    def close(self) -> None:
        """Ends the thread, uploads the last changes and removes the files here. Raises
        RunDirectoryError, and keeps them, if the upload fails."""
        self._ended.set()
        self._thread.join()
        try:
            self._upload_changed()
        except Exception as error:
            raise RunDirectoryError(
                f"{self._run}: could not upload the last metrics and samples: {reason(error)}; "
                f"they are in {self.path}"
            ) from error
        remove(self.path)

    def _every_interval(self) -> None:
        while not self._ended.wait(INTERVAL):
            self.upload()

    def _upload_changed(self) -> None:
        # If the run was taken over, the bucket has another process's files.
        self._holding.check()
        with self._lock:
            for path in sorted(self.path.rglob("*")):
                # Hidden: written aside, to be renamed.
                if path.is_file() and not path.name.startswith("."):
                    state = _state(path)
                    if self._sent.get(path) != state:
                        target = self._run.path / path.relative_to(self.path).as_posix()
                        target.write_bytes(path.read_bytes())
                        self._sent[path] = state


@contextlib.contextmanager
def growing_files(
    run: RunDirectory, holding: Holding, say: Callable[[str], None]
) -> Iterator[GrowingFiles]:
    """A run's growing files, for the process that trains. Raises RunDirectoryError."""
    if not is_remote(run.path) or not is_primary():
        yield GrowingFiles(run.path)
        return
    folder = Path(tempfile.mkdtemp(prefix="flaxformer_mt-"))
    staged = StagedFiles(run, folder, say, holding)
    try:
        yield staged
    except BaseException:
        try:
            staged.close()
        except RunDirectoryError as error:
            say(str(error))
        raise
    staged.close()


def _state(path: Path) -> tuple[int, int]:
    """Tells a changed file from an unchanged one."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns
