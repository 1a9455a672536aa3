"""Reads lines of files, store objects and standard input, and pairs of lines of two files."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import io
import os
import stat
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO, ClassVar, cast

from flaxformer_mt.bulk.paragraphs import joined
from flaxformer_mt.data.corpus.paths import is_remote, locate, stamp
from flaxformer_mt.data.corpus.text_files import LONGEST, damage, open_text, too_long
from flaxformer_mt.errors import UserError
from flaxformer_mt.files.reading import AnyPath

_UTF8_BOM = b"\xef\xbb\xbf"


class InputError(UserError):
    """Input that can't be read or used; the message names the file and the line."""


@dataclasses.dataclass(frozen=True)
class OneInput:
    """The lines of a file, also compressed or in a store, or of standard input (None); or its
    `paragraphs`, each as one line."""

    path: str | None
    paragraphs: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are read."""
        return () if self.path is None else (self.path,)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Lines | Paragraphs]:
        """The lines, from the first. Raises CorpusError."""
        with open_lines(self.path) as lines:
            yield Paragraphs(lines) if self.paragraphs else lines


@dataclasses.dataclass(frozen=True)
class PairedInputs:
    """Two files whose lines belong together."""

    src: str
    tgt: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are read."""
        return self.src, self.tgt

    def opened(self) -> contextlib.AbstractContextManager[TwoInputs]:
        """The lines, from the first. Raises CorpusError, and InputError if one file has more."""
        return open_pairs(self.src, self.tgt)


Input = OneInput | PairedInputs


def readable_once(source: Input) -> str | None:
    """The name of an input, such as a pipe, that can't be read a second time; None if all can."""
    if not source.paths:
        return "standard input"
    for path in source.paths:
        if os.path.exists(path) and not os.path.isfile(path):
            return path
    return None


@dataclasses.dataclass(eq=False)
class Lines(Iterator[bytes]):
    """The lines of one input without their ends, "\\n" or "\\r\\n", and how far they are read.

    Messages have `name` and the line's number, from 1. Raises CorpusError while they are read.
    """

    name: str
    stream: BinaryIO  # reads ahead in `text`
    place: AnyPath | None = None  # None: standard input
    text: BinaryIO | None = None  # decompressed from `file`
    file: BinaryIO | None = None
    size: int | None = None  # bytes of `file`
    number: int = 0  # of the line given last
    bytes_read: int = 0  # of text
    prompt: str = ""  # shown to a person before each line
    start: ClassVar[int] = 0
    _ended: bool = False

    @property
    def interactive(self) -> bool:
        return self.stream.isatty()

    @property
    def line(self) -> int:
        """The place of the line given last, for messages."""
        return self.number

    def __next__(self) -> bytes:
        with _damage_told(self.place, after=self.number):
            line = self._read()
        if not line:
            self._ended = True
            if self.prompt:
                print(file=sys.stderr)
            raise StopIteration
        self.number += 1
        self.bytes_read += len(line)
        if len(line) > LONGEST:
            raise too_long(self.name, self.number)
        if self.number == 1:
            line = line.removeprefix(_UTF8_BOM)
        return line.removesuffix(b"\n").removesuffix(b"\r")

    def _read(self) -> bytes:
        if not self.prompt:
            return self.stream.readline(LONGEST + 1)
        if _can_edit():
            return _edited(self.prompt)
        print(self.prompt, end="", file=sys.stderr, flush=True)
        return self.stream.readline(LONGEST + 1)

    def read_whole(self, most: int) -> bytes:
        """The text of an input of which no line is read yet, up to `most` bytes."""
        with _damage_told(self.place):
            return self.stream.read(most)

    def share(self, done: int) -> float | None:
        """The share of the input that the first `done` bytes of its text make, if known."""
        if self.text is None or self.file is None or not self.size:
            return None
        if self._ended:
            return min(done / self.bytes_read, 1.0) if self.bytes_read else None
        if self.text is self.file:
            return min(done / self.size, 1.0)
        # Compressed: estimated by the file's bytes that were read, until all are.
        text_bytes, file_bytes = self.text.tell(), self.file.tell()
        if not text_bytes or file_bytes >= self.size:
            return None
        return done / text_bytes * file_bytes / self.size


class Paragraphs(Iterator[bytes]):
    """The paragraphs of an input, each as one line, and an empty one for each blank line between.

    `number` counts both. Raises InputError for a paragraph that is too long, and for text that
    isn't UTF-8, at its own line.
    """

    start = 0

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._is_blank_next = False
        self.name = lines.name
        self.number = 0
        self.line = 0  # of the input, where what was given last begins

    @property
    def interactive(self) -> bool:
        return self._lines.interactive

    def prompt(self, text: str) -> None:
        """Shows this to a person before each line."""
        self._lines.prompt = text

    def share(self, done: int) -> float | None:
        return self._lines.share(done)

    def __next__(self) -> bytes:
        paragraph = [] if self._is_blank_next else self._read()
        if not paragraph:
            self.line = self._lines.number
        self._is_blank_next = bool(paragraph) and self._is_blank_next
        self.number += 1
        return joined(paragraph).encode()

    def _read(self) -> list[str]:
        """The lines up to a blank one or the end; none if the next one is blank."""
        paragraph: list[str] = []
        size = 0
        for line in self._lines:
            text = self._decoded(line)
            if not text.strip():
                self._is_blank_next = True
                return paragraph
            if not paragraph:
                self.line = self._lines.number
            paragraph.append(text)
            size += len(line)
            if size > LONGEST:
                raise InputError(
                    f"{self.name}:{self.line}: the paragraph that begins here has over {LONGEST:,} "
                    "bytes; put blank lines between paragraphs, or don't join lines"
                )
        if not paragraph:
            raise StopIteration
        return paragraph

    def _decoded(self, line: bytes) -> str:
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.name}:{self._lines.number}: is not UTF-8 text (byte {error.start + 1})"
            ) from None


@contextlib.contextmanager
def _damage_told(place: AnyPath | None, *, after: int = 0) -> Iterator[None]:
    """Raises CorpusError where a file is damaged, `after` a line."""
    try:
        yield
    except Exception as error:
        damaged = place and damage(place, error, after=after)
        if not damaged:
            raise
        raise damaged from error


def _can_edit() -> bool:
    """Whether a person can edit a line before it is read, with arrow keys and earlier lines."""
    # Python's `input` writes its prompt to standard output, where translations may go to a file.
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return importlib.util.find_spec("readline") is not None


def _edited(prompt: str) -> bytes:
    """A line that a person has typed, with its end; nothing at the end of input."""
    import readline  # noqa: F401 (`input` uses it once it is loaded)

    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # whoever reads the bytes refuses them
    try:
        line = input(prompt)
    except EOFError:
        return b""
    return line.encode(sys.stdin.encoding, errors="surrogateescape") + b"\n"


@contextlib.contextmanager
def open_lines(path: str | None) -> Iterator[Lines]:
    """The lines of a file, also compressed or in a store, or of standard input (None).

    Raises CorpusError.
    """
    if path is None:
        stream = sys.stdin.buffer
        size = _size_of(stream)
        yield Lines("standard input", stream, text=stream, file=stream, size=size)
        return
    place = locate(path, "")
    with open_text(place) as (text, file):
        size = stamp(place)[0] if is_remote(place) else _size_of(file)
        buffered = cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, text), 1 << 16))
        yield Lines(path, buffered, place=place, text=text, file=file, size=size)


class TwoInputs(Iterator[bytes]):
    """Line n of one input and line n of another, with a line end between them."""

    start = 0

    def __init__(self, src: Lines, tgt: Lines) -> None:
        self._src = src
        self._tgt = tgt
        self.name = f"{src.name}, {tgt.name}"

    @property
    def number(self) -> int:
        return self._src.number

    @property
    def line(self) -> int:
        """The place of the pair given last, for messages."""
        return self.number

    def __next__(self) -> bytes:
        src, tgt = next(self._src, None), next(self._tgt, None)
        if src is None and tgt is None:
            raise StopIteration
        if src is None or tgt is None:
            short, long = (self._src, self._tgt) if src is None else (self._tgt, self._src)
            raise InputError(
                f"{short.name}: ends after {short.number:,} lines, but {long.name} has more: "
                "both need one line per pair"
            )
        return src + b"\n" + tgt

    def share(self, done: int) -> float | None:
        read = self._src.bytes_read + self._tgt.bytes_read
        return self._src.share(round(done * self._src.bytes_read / read)) if read else None


Whole = Lines | TwoInputs | Paragraphs


class Shard(Iterator[bytes]):
    """The lines of an input after `start` up to `stop`, with their numbers; `size` bytes.

    Raises InputError if there are fewer than when they were counted.
    """

    def __init__(self, lines: Whole, start: int, stop: int, size: int) -> None:
        self.name = lines.name
        self.start = start
        self._lines = lines
        self._stop = stop
        self._size = size
        while lines.number < start and next(lines, None) is not None:
            pass

    @property
    def number(self) -> int:
        return self._lines.number

    @property
    def line(self) -> int:
        """The place of the line given last, for messages."""
        return self._lines.line

    def __next__(self) -> bytes:
        if self.number >= self._stop:
            raise StopIteration
        line = next(self._lines, None)
        if line is None:
            raise InputError(
                f"{self.name}: has changed, or cannot be read twice: it ends after line "
                f"{self.number:,}; copy it to a file first"
            )
        return line

    def share(self, done: int) -> float | None:
        return min(done / self._size, 1.0) if self._size else None


@contextlib.contextmanager
def open_pairs(src: str, tgt: str) -> Iterator[TwoInputs]:
    """The lines of two files in step. Raises CorpusError, and InputError if one has more."""
    with open_lines(src) as src_lines, open_lines(tgt) as tgt_lines:
        yield TwoInputs(src_lines, tgt_lines)


def _size_of(file: Any) -> int | None:
    try:
        status = os.fstat(file.fileno())
    except (OSError, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
