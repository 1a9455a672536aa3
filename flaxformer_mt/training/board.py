"""The numbers of reports as TensorBoard reads them."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

# tensorboardX loads Google's storage client where that is installed: half a second on the way to
# a run's first step, and none to a report.
if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import RecordWriter

_VERSION = "brain.Event:2"  # from which on readers heed the start of a session


class Board:
    """Event files in `folder`; a report is in its file when `show` returns.

    tensorboardX's own writer hands events to a thread, for which its `flush` does not wait: the
    last report can be missing, and a full disk ends the thread. Its records are what is used here.

    A file is begun with the first report. It says that a session starts after step `after`, for
    which TensorBoard hides what a killed run, or one that went back, had written of later steps.
    """

    def __init__(self, folder: Path, *, after: int) -> None:
        self.folder = folder
        self._after = after
        self._writer: RecordWriter | None = None

    def show(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers by tag, such as "train/loss". Raises OSError; then nothing more can be shown."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        if self._writer is None:
            self._writer = self._begun()
        shown = [Summary.Value(tag=tag, simple_value=float(value)) for tag, value in values.items()]
        _write(self._writer, Event(step=step, summary=Summary(value=shown)))
        self._writer.flush()

    def rewind(self, step: int) -> None:
        """What was shown of steps after `step` is hidden once there is another report."""
        self.close()
        self._after = step

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            # What could not be written has been said where it was shown.
            with contextlib.suppress(OSError):
                writer.close()

    def _begun(self) -> RecordWriter:
        from tensorboardX.proto.event_pb2 import Event, SessionLog
        from tensorboardX.record_writer import RecordWriter

        self.folder.mkdir(parents=True, exist_ok=True)
        # Readers take files in the order of their names. A name that is taken would be emptied.
        stem = f"events.out.tfevents.{int(time.time())}"
        names = (f"{stem}.{number:03}.{socket.gethostname()}" for number in itertools.count())
        place = next(path for name in names if not (path := self.folder / name).exists())
        writer = RecordWriter(str(place))
        first = self._after + 1
        _write(writer, Event(step=first, file_version=_VERSION))
        start = SessionLog(status=SessionLog.START)
        _write(writer, Event(step=first, session_log=start))
        return writer


def _write(writer: RecordWriter, event: Event) -> None:
    event.wall_time = time.time()
    writer.write(event.SerializeToString())
