"""Files that grow while a run trains: metrics, TensorBoard's events, samples, goodput, traces.

Beside a local run they are written where they belong. An object in a bucket cannot be appended to:
there they grow on this machine and are uploaded whole, now and then and before every checkpoint.
Unless uploads fail, the metrics in the bucket thus reach at least as far as its newest checkpoint,
from which a restart goes on and to which it rewinds them.
"""

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.lock import Holding
from flaxformer_mt.rundir.paths import asking, is_primary, is_remote, persistently, reason

INTERVAL = 60.0  # seconds between uploads
PERSISTENT = 1800.0  # seconds without a successful upload after which training ends


class GrowingFiles(RunDirectory):
    """Where a local run's growing files are; nothing to upload."""

    def upload(self) -> None:
        """Brings the bucket up to date. A failure is reported, and a lasting one raised."""


class StagedFiles(GrowingFiles):
    """Growing files on this machine that a thread uploads every `interval` seconds.

    A failed upload does not end training: it is reported once and tried again at intervals that
    double; the files are whole ones, so the next success makes up for all. Only after `persistent`
    seconds without a success does `upload` raise RunDirectoryError.
    """

    def __init__(
        self,
        run: RunDirectory,
        folder: Path,
        report: Callable[[str], None],
        *,
        holding: Holding | None = None,
        interval: float = INTERVAL,
        persistent: float = PERSISTENT,
    ) -> None:
        super().__init__(folder)
        self._run, self._report = run, report
        self._holding = holding or Holding()
        self._interval, self._persistent = interval, persistent
        self._sent: dict[Path, tuple[int, int]] = {}  # size and time of change when last uploaded
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._succeeded = time.monotonic()
        self._failing = False
        for here, there in ((self.metrics, run.metrics), (self.goodput, run.goodput)):
            with contextlib.suppress(FileNotFoundError):
                here.write_bytes(asking(there, "read", there.read_bytes))
                self._sent[here] = _state(here)
        self._thread = threading.Thread(target=self._every_interval, daemon=True)
        self._thread.start()

    def upload(self) -> None:
        error = self._try()
        waited = time.monotonic() - self._succeeded
        if error is not None and waited > self._persistent:
            raise RunDirectoryError(
                f"{self._run}: could not upload metrics and samples for {waited / 60:.0f} "
                f"minutes: {reason(error)}; they are in {self.path}"
            ) from error

    def close(self) -> None:
        """Ends the thread and uploads what is left. Raises RunDirectoryError if that fails."""
        self._ended.set()
        self._thread.join()
        try:
            persistently(self._upload_changed)
        except Exception as error:
            raise RunDirectoryError(
                f"{self._run}: could not upload the last metrics and samples: {reason(error)}; "
                f"they are in {self.path}"
            ) from error

    def _every_interval(self) -> None:
        wait = self._interval
        while not self._ended.wait(wait):
            wait = self._interval if self._try() is None else min(2 * wait, 16 * self._interval)

    def _try(self) -> Exception | None:
        try:
            self._upload_changed()
        except Exception as error:
            if not self._failing:
                self._report(f"{self._run}: could not upload metrics, retrying: {reason(error)}")
            self._failing = True
            return error
        if self._failing:
            self._report(f"{self._run}: metrics uploads work again")
        self._failing, self._succeeded = False, time.monotonic()
        return None

    def _upload_changed(self) -> None:
        # After the run was taken over, the bucket has another process's files.
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
    run: RunDirectory, *, holding: Holding | None = None, report: Callable[[str], None] = print
) -> Iterator[GrowingFiles]:
    """A run's growing files for the process that trains, while it holds the run.

    Of several processes the first alone writes them. Raises RunDirectoryError: files that cannot be
    uploaded in the end are kept, and the error says where.
    """
    if not is_remote(run.path) or not is_primary():
        yield GrowingFiles(run.path)
        return
    folder = Path(tempfile.mkdtemp(prefix="flaxformer_mt-"))
    staged = StagedFiles(run, folder, report, holding=holding)
    try:
        yield staged
    except BaseException:
        # What ended training is the error to tell.
        try:
            staged.close()
        except RunDirectoryError as error:
            report(str(error))
        else:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    staged.close()
    shutil.rmtree(folder, ignore_errors=True)


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
