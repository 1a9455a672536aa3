"""Where a job's output goes: standard output, a device, a file, or the shards of a file."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence

from flaxformer_mt.bulk.output_errors import OutputError
from flaxformer_mt.bulk.shard_records import ShardRecord, check_shard, record_of
from flaxformer_mt.bulk.shards import Cut
from flaxformer_mt.bulk.sinks import BucketSink, FileSink, ShardedSink, Sink, StreamSink
from flaxformer_mt.rundir import paths


@dataclasses.dataclass(frozen=True)
class Output:
    """A file, local or `gs://`, that a later call can continue; or standard output (None)."""

    path: str | None
    restart: bool = False  # start over, discarding earlier output


@contextlib.contextmanager
def opened_sink(output: Output, inputs: Sequence[str], cut: Cut | None = None) -> Iterator[Sink]:
    """The file, or the shards that it is `cut` into. Raises OutputError, also for a file that is
    one of the `inputs`."""
    path = output.path
    if path is None:
        yield StreamSink(sys.stdout.buffer)
        return
    if not path:
        raise OutputError("the output's name is empty: name a file, or None for standard output")
    if cut is None and is_device(path):
        with contextlib.closing(StreamSink(None, path)) as device:
            yield device
        return

    files = _Files(path, output.restart, cut)
    files.check_inputs(inputs)
    with contextlib.closing(files.sink()) as sink:
        yield sink


def is_device(path: str) -> bool:
    """Whether something exists there that isn't a file. Raises OutputError for a folder."""
    if "://" in path or not os.path.exists(path) or os.path.isfile(path):
        return False
    if os.path.isdir(path):
        raise OutputError(f"{path}: is a folder; --output must be a file")
    return True


@dataclasses.dataclass(frozen=True)
class _Files:
    """A file that a later call can continue, or several shards instead of it."""

    path: str
    restart: bool
    cut: Cut | None  # None: the file itself

    @property
    def names(self) -> list[str]:
        """The files that it becomes."""
        return [self.path] if self.cut is None else [*self.cut.ends]

    @property
    def record(self) -> str:
        """Where several shards record which of them are finished."""
        return f"{self.path}.shards.json"

    def check_inputs(self, inputs: Sequence[str]) -> None:
        """Raises OutputError if a file that will be written is one of the inputs."""
        for name in self.names:
            for path in (name, f"{name}.part", f"{name}.part.json"):
                if any(_same(source, path) for source in inputs):
                    raise OutputError(f"{path}: is also the input; choose another --output")

    def sink(self) -> Sink:
        """Where the output goes; whoever calls this closes it."""
        names = self.names
        if self.cut is None or len(names) == 1:
            return self._file_sink(names[0])
        return ShardedSink(
            self.record,
            [stop for _, (stop, _) in self.cut.ends.values()],
            lambda number: self._file_sink(names[number]),
            restart=self.restart,
            check=self._check_finished,
        )

    def _file_sink(self, name: str) -> Sink:
        kind = BucketSink if "://" in name else FileSink
        if self.cut is None:
            return kind(name, restart=self.restart)
        return kind(name, restart=self.restart, ends=self.cut.ends[name], whole=self.cut.line_count)

    def _check_finished(self, number: int) -> None:
        """Raises OutputError if a shard recorded as finished is missing or has changed."""
        name = self.names[number]
        finished = paths.as_path(name)
        if not paths.exists(finished):
            raise OutputError(
                f"{finished}: is missing, but {self.record} says that it is finished; put it back, "
                "or start over with --restart"
            )
        with paths.document(record_of(name), "make the shard again") as document:
            record = ShardRecord.read(document)
        check_shard(name, record)


def _same(name: str, other: str) -> bool:
    if "://" in name:
        return name == other
    return os.path.isfile(name) and os.path.exists(other) and os.path.samefile(name, other)
