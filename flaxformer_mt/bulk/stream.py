"""Any number of lines through a model, in order and in constant memory."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from flaxformer_mt.bulk.forms import BadLine
from flaxformer_mt.bulk.reading import InputError, Lines, Shard, TwoInputs
from flaxformer_mt.bulk.sinks import Consumed, OutputError, Sink
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.decoding.segments import LineError, OverlongError
from flaxformer_mt.progress import Meter

WINDOW = 4096  # lines read before any is written: sorted by length, they share batches
WINDOW_BYTES = 1 << 22  # bytes of them, so that long lines take no more memory
NOTES = 20  # of a call's notes are shown

Record = TypeVar("Record")


@dataclasses.dataclass
class Window:
    """Some lines in a row of an input, and the error that reading them ended with, if it did."""

    name: str  # the input's, for messages
    first: int  # the first one's number, from 1
    lines: list[bytes]
    error: Exception | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.lines)) + len(self.lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Made:
    """What a window's lines became, up to one that is refused."""

    output: bytes = b""
    tokens: int = 0  # that the model has said
    sums: Mapping[str, float] = dataclasses.field(default_factory=dict)  # to add to other windows'
    notes: Sequence[str] = ()  # what a user should hear of single lines
    error: Exception | None = None  # why a line is refused


def windows(lines: Lines | TwoInputs | Shard, *, window: int) -> Iterator[Window]:
    """The lines, `window` at a time, or as many as have `WINDOW_BYTES`.

    Which lines share a window depends on the input alone, so that a call which continues another's
    output makes the same batches.
    """
    error: Exception | None = None
    while error is None:
        found, size = Window(lines.name, lines.number + 1, []), 0
        try:
            while len(found.lines) < window and size < WINDOW_BYTES:
                found.lines.append(next(lines))
                size += len(found.lines[-1])
        except StopIteration:
            if found.lines:
                yield found
            return
        except (InputError, CorpusError) as why:
            found.error = error = why
        yield found


def shard_of(
    whole: Lines | TwoInputs, index: int, count: int, *, window: int
) -> tuple[int, int, int]:
    """Part `index` of `count`: the lines before it, its last line, and its bytes of text.

    It has whole windows, so that the parts make the batches that a single call makes. Reads the
    input to its end. Raises InputError and CorpusError.
    """
    ends = [(0, 0)]
    for each in windows(whole, window=window):
        if each.error is not None:
            raise each.error
        ends.append((whole.number, ends[-1][1] + each.size))
    last = len(ends) - 1
    (start, before), (stop, size) = ends[last * index // count], ends[last * (index + 1) // count]
    return start, stop, size - before


def stream(
    lines: Lines | TwoInputs | Shard,
    sink: Sink,
    work: Callable[[Iterable[Window]], Iterable[tuple[Window, Made]]],
    *,
    identity: Mapping[str, Any],
    window: int,
    meter: Meter,
) -> dict[str, float]:
    """Writes what `work` makes of the lines, a window at a time; returns its sums over all of them.

    `work` gives each window and what became of it, in order, and may read some ahead.

    Where `sink` has the output of an earlier call of the same `identity`, that is continued after
    the last window which it has committed. Lines before one that is refused are written.

    Raises InputError and CorpusError with file and line, OutputError, and what `work` raises.
    """
    done, digest = sink.begin(identity), hashlib.sha256()
    if done.lines:
        _skip(lines, done, digest)
        meter.say(f"{sink.kept}: resuming after line {lines.start + done.lines:,}")
    meter.begin(skipped=done.size)
    sums, noted = dict(done.sums), 0
    for each, made in work(windows(lines, window=window)):
        for note in made.notes[: max(0, NOTES - noted)]:
            meter.say(note)
        if noted < NOTES <= noted + len(made.notes):
            meter.say("more lines like these are only counted")
        noted += len(made.notes)
        meter.close()  # the output may go to the same terminal, below its line
        sink.write(made.output)
        if made.error is not None:
            raise made.error
        for line in each.lines:
            digest.update(line + b"\n")
        sums = {name: sums.get(name, 0) + value for name, value in made.sums.items()}
        done = Consumed(
            lines=done.lines + len(each.lines),
            size=done.size + each.size,
            sha256=digest.hexdigest(),
            sums=sums,
        )
        sink.commit(done)
        meter.advance(lines=len(each.lines), tokens=made.tokens, size=each.size)
    sink.finish()
    return sums


def made_of(
    window: Window, parse: Callable[[bytes], Record], make: Callable[[list[Record]], Made]
) -> Made:
    """What `make` makes of the lines before the first that is refused, and why that one is.

    `parse` raises BadLine, and `make` LineError.
    """
    records, error = [], window.error
    for number, line in enumerate(window.lines, start=window.first):
        try:
            records.append(parse(line))
        except BadLine as why:
            error = InputError(f"{window.name}:{number}: {why}")
            break
    while records:
        try:
            return dataclasses.replace(make(records), error=error)
        except LineError as why:
            advice = "; --overlong split" if isinstance(why, OverlongError) and why.splits else ""
            number = window.first + why.number
            error = InputError(f"{window.name}:{number}: {why.reason}{advice}")
            records = records[: why.number]
    return Made(error=error)


def _skip(lines: Lines | TwoInputs | Shard, done: Consumed, digest: Any) -> None:
    """Reads what an earlier call has done. Raises OutputError if the input is another one."""
    while lines.number < lines.start + done.lines and (line := next(lines, None)) is not None:
        digest.update(line + b"\n")
    if digest.hexdigest() != done.sha256:
        raise OutputError(
            f"{lines.name}: its first {done.lines:,} lines differ from those the unfinished "
            "output was made from; give the same input, or start over with --restart"
        )
