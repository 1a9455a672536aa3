"""Any number of lines through a model, in order and in constant memory."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from flaxformer_mt.bulk.forms import BadLine
from flaxformer_mt.bulk.reading import InputError
from flaxformer_mt.bulk.sinks import Sink
from flaxformer_mt.bulk.state import Consumed, OutputError
from flaxformer_mt.data.corpus import CorpusError
from flaxformer_mt.decoding.segments import LineError, OverlongError
from flaxformer_mt.progress import Meter

WINDOW = 4096  # lines read before any is written: sorted by length, they share batches
WINDOW_BYTES = 1 << 22  # bytes of them, so that long lines take no more memory

Record = TypeVar("Record")
Taken = TypeVar("Taken", contravariant=True)


@dataclasses.dataclass(frozen=True)
class Made:
    """What is written for each record of a window, and how many tokens the model has said."""

    outputs: Sequence[bytes]
    tokens: int


class Input(Protocol):
    """Lines in order; `reading.Lines` is one. Raises InputError and CorpusError while read."""

    name: str

    @property
    def number(self) -> int:
        """Of the line given last, from 1."""

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes: ...


class Action(Protocol[Taken]):
    """What is done with the records of a window."""

    def __call__(self, records: Sequence[Taken], first: int) -> Made:
        """`first` is the first record's line. Raises LineError."""

    def sums(self) -> Mapping[str, float]:
        """What it has counted so far, for a later call to go on with."""

    def go_on(self, sums: Mapping[str, float]) -> None:
        """Takes over what an earlier call has counted."""

    def summary(self) -> Sequence[str]:
        """Lines for a person at the end."""


@dataclasses.dataclass
class Window:
    """Some lines in a row, and the error that reading them ended with, if it did."""

    first: int  # the first one's number, from 1
    lines: list[bytes]
    error: Exception | None = None

    @property
    def size(self) -> int:
        return sum(map(len, self.lines)) + len(self.lines)


def windows(lines: Input, *, window: int) -> Iterator[Window]:
    """The lines, `window` at a time, or as many as have `WINDOW_BYTES`.

    Which lines share a window depends on the input alone, so that a call which goes on with
    another's output makes the same batches.
    """
    found = Window(1, [])
    while found.error is None:
        found, size = Window(lines.number + 1, []), 0
        try:
            while len(found.lines) < window and size < WINDOW_BYTES:
                found.lines.append(next(lines))
                size += len(found.lines[-1])
        except StopIteration:
            if found.lines:
                yield found
            return
        except (InputError, CorpusError) as error:
            found.error = error
        yield found


def stream(
    lines: Input,
    sink: Sink,
    *,
    parse: Callable[[bytes], Record],
    action: Action[Record],
    identity: Mapping[str, Any],
    window: int,
    meter: Meter,
) -> None:
    """Reads records, and writes what `action` makes of them, a window at a time.

    Where `sink` has the output of an earlier call of the same `identity`, that is gone on with
    after the last window which it has committed. Lines before one that is refused are written.

    Raises InputError and CorpusError with file and line, OutputError, and what `action` raises.
    """
    done, digest = sink.begin(identity), hashlib.sha256()
    if done.lines:
        if done.sums.keys() != action.sums().keys():
            raise OutputError(
                f"{sink.kept}: its record is damaged: it has counted {', '.join(done.sums) or 0}, "
                f"not {', '.join(action.sums())}; begin anew with --restart"
            )
        _skip(lines, done, digest)
        action.go_on(done.sums)
        meter.say(f"{sink.kept}: going on after line {done.lines:,}")
    meter.begin(skipped=done.size)
    for each in windows(lines, window=window):
        made, error = _made(each, lines.name, parse, action)
        meter.close()  # the output may go to the same terminal, below its line
        sink.write(b"".join(made.outputs))
        if error is not None:
            raise error
        for line in each.lines:
            digest.update(line + b"\n")
        done = Consumed(
            lines=done.lines + len(each.lines),
            size=done.size + each.size,
            sha256=digest.hexdigest(),
            sums=dict(action.sums()),
        )
        sink.commit(done)
        meter.advance(lines=len(each.lines), tokens=made.tokens, size=each.size)
    sink.finish()


def _made(
    window: Window, name: str, parse: Callable[[bytes], Record], action: Action[Record]
) -> tuple[Made, Exception | None]:
    """What comes of the lines before the first that is refused, and why that one is."""
    records, error = [], window.error
    for number, line in enumerate(window.lines, start=window.first):
        try:
            records.append(parse(line))
        except BadLine as why:
            error = InputError(f"{name}:{number}: {why}")
            break
    while records:
        try:
            return action(records, window.first), error
        except LineError as why:
            advice = "; --overlong split" if isinstance(why, OverlongError) and why.splits else ""
            error = InputError(f"{name}:{window.first + why.number}: {why.reason}{advice}")
            records = records[: why.number]
    return Made((), 0), error


def _skip(lines: Input, done: Consumed, digest: Any) -> None:
    """Reads what an earlier call has done. Raises OutputError if the input is another one."""
    while lines.number < done.lines and (line := next(lines, None)) is not None:
        digest.update(line + b"\n")
    if digest.hexdigest() != done.sha256:
        raise OutputError(
            f"{lines.name}: its first {done.lines:,} lines are not those of which the output to go "
            "on with was made; give the same input, or begin anew with --restart"
        )
