"""Any number of lines through a function of windows, in order and in constant memory."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from flaxformer_mt.bulk.forms import BadLine
from flaxformer_mt.bulk.output_errors import OutputError
from flaxformer_mt.bulk.reading import InputError, Shard, Whole
from flaxformer_mt.bulk.shard_records import Place
from flaxformer_mt.bulk.sinks import Consumed, Sink
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.decoding.errors import LineError
from flaxformer_mt.progress import Meter
from flaxformer_mt.wording import about_lines

WINDOW = 4096  # lines read before any is written: sorted by length, they share batches
WINDOW_BYTES = 1 << 22  # bytes of them, so that long lines take no more memory
NOTES = 20  # of a call's notes, and of a remark's lines, are shown

T = TypeVar("T")


@dataclasses.dataclass
class Window:
    """Consecutive lines of an input, and the error that ended reading, if any."""

    name: str  # the input's, for messages
    first: int  # the first one's number, from 1
    lines: list[bytes]
    error: Exception | None = None
    # Of each line in the input, for messages: a paragraph's is that of its first line.
    places: list[int] = dataclasses.field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(map(len, self.lines)) + len(self.lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """A window's output, up to a refused line."""

    output: bytes = b""
    tokens: int = 0
    sums: Mapping[str, float] = dataclasses.field(default_factory=dict)  # added over windows
    notes: Sequence[str] = ()  # for the user, about single lines
    # Line numbers by remark, which is the end of a sentence that begins with "LINES lines".
    remarks: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    error: Exception | None = None  # why a line was refused


def windows(lines: Whole | Shard, *, window: int) -> Iterator[Window]:
    """The lines, `window` or `WINDOW_BYTES` at a time, the same for a call that resumes."""
    while True:
        current = Window(lines.name, lines.number + 1, [])
        size = 0
        try:
            while len(current.lines) < window and size < WINDOW_BYTES:
                current.lines.append(next(lines))
                current.places.append(lines.line)
                size += len(current.lines[-1])
        except StopIteration:
            if current.lines:
                yield current
            return
        except (InputError, CorpusError) as error:
            current.error = error
            yield current
            return
        yield current


def shard_ends(whole: Whole, count: int, *, window: int) -> list[tuple[Place, int]]:
    """The place and the bytes of text before each of `count` parts of whole windows, and in all."""
    size = 0
    ends: list[tuple[Place, int]] = [((0, ""), size)]  # of every window
    for part in windows(whole, window=window):
        if part.error is not None:
            raise part.error
        last_line = hashlib.sha256(part.lines[-1]).hexdigest()[:16]
        size += part.size
        ends.append(((whole.number, last_line), size))
    window_count = len(ends) - 1
    return [ends[window_count * shard // count] for shard in range(count + 1)]


def stream(
    lines: Whole | Shard,
    sink: Sink,
    work: Callable[[Iterable[Window]], Iterable[tuple[Window, Made]]],
    *,
    identity: Mapping[str, Any],
    window: int,
    meter: Meter,
) -> dict[str, float]:
    """Writes the output of `work` for the lines, window by window; returns the sums.

    `work` yields windows in order and may read ahead. Continues output of the same `identity`.
    Raises InputError and CorpusError with file and line, OutputError (also if the input has changed
    since the output was begun) and the errors of `work`. At the end, also after an error, the meter
    says each remark with the first lines that it is about.
    """
    done = sink.begin(identity)
    digest = hashlib.sha256()
    if done.lines:
        _skip(lines, done.lines, digest)
        if digest.hexdigest() != done.sha256:
            raise OutputError(
                f"{lines.name}: its first {done.lines:,} lines differ from those the output was "
                "made from; give the same input, or start over with --restart"
            )
        meter.say(f"{sink.kept}: resuming after line {lines.start + done.lines:,}")
    meter.begin(skipped=done.size)

    notes = _Notes(meter)
    with _remarks(lines.name, meter) as remarks:
        for part, product in work(windows(lines, window=window)):
            notes.say(product.notes)
            remarks.add(product.remarks)
            meter.close()  # the output may go to the same terminal
            sink.write(product.output)
            if product.error is not None:
                raise product.error

            for line in part.lines:
                digest.update(line + b"\n")
            done = Consumed(
                lines=done.lines + len(part.lines),
                size=done.size + part.size,
                sha256=digest.hexdigest(),
                sums={
                    name: done.sums.get(name, 0) + number for name, number in product.sums.items()
                },
            )
            sink.commit(done)
            meter.advance(lines=len(part.lines), tokens=product.tokens, size=part.size)
    sink.finish()
    return dict(done.sums)


def _skip(lines: Whole | Shard, count: int, digest: hashlib._Hash) -> None:
    """Reads the first `count` lines, or as many as there are, into a digest."""
    while lines.number < lines.start + count:
        line = next(lines, None)
        if line is None:
            return
        digest.update(line + b"\n")


class _Notes:
    """Says the first notes of a call."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._count = 0

    def say(self, notes: Sequence[str]) -> None:
        for note in notes[: max(0, NOTES - self._count)]:
            self._meter.say(note)
        if self._count <= NOTES < self._count + len(notes):
            self._meter.say("more lines like these are only counted")
        self._count += len(notes)


class _Remarks:
    """How many lines each remark is about, and the first of them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, list[int]] = {}

    def add(self, remarks: Mapping[str, Sequence[int]]) -> None:
        for remark, numbers in remarks.items():
            self._counts[remark] = self._counts.get(remark, 0) + len(numbers)
            first = self._first.setdefault(remark, [])
            first += numbers[: NOTES - len(first)]

    def describe(self) -> Iterator[str]:
        for remark, count in self._counts.items():
            yield about_lines(remark, self._first[remark], count)


@contextlib.contextmanager
def _remarks(name: str, meter: Meter) -> Iterator[_Remarks]:
    """Says the remarks at the end, also after an error."""
    remarks = _Remarks()
    try:
        yield remarks
    finally:
        for line in remarks.describe():
            meter.say(f"{name}: {line}")


def made_of(window: Window, parse: Callable[[bytes], T], make: Callable[[list[T]], Made]) -> Made:
    """The output that `make` gives for a window's lines.

    It ends before the first line that `parse` or `make` refuses, with the reason as its `error`.
    """
    records = []
    error = window.error
    for place, line in zip(window.places, window.lines, strict=True):
        try:
            records.append(parse(line))
        except BadLine as why:
            error = InputError(f"{window.name}:{place}: {why}")
            break
    while records:
        try:
            return dataclasses.replace(make(records), error=error)
        except LineError as why:
            advice = "; use --overlong split" if why.splits else ""
            place = window.places[why.number]
            error = InputError(f"{window.name}:{place}: {why.reason}{advice}")
            records = records[: why.number]
    return Made(error=error)
