"""Reading parallel text: plain, gzip and xz files, two-column TSV, and the built-in grammar.

A line ends at b"\\n" and nowhere else: U+0085 and U+2028 occur inside real sentences, and a reader
that split there would shift one side against the other. Both sides are read as bytes, line by
line and in step, and a pair with a defect is left out whole, so alignment cannot shift.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import itertools
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from flaxformer_mt.config.schema import CorpusConfig

# C0 except tab and newline, and DEL. The C1 range stays: newstest2014's French reference holds
# U+0085, and dropping that line would change a published test set.
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")

_UTF8_BOM = b"\xef\xbb\xbf"
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"PK\x03\x04": "zip",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_SUFFIXES = {
    ".gz": "gzip",
    ".xz": "xz",
    ".zst": "zstandard",
    ".bz2": "bzip2",
    ".zip": "zip",
}
_READABLE: dict[str, Callable[..., Any]] = {"gzip": gzip.open, "xz": lzma.open}

INVALID_UTF8 = "invalid UTF-8"
CONTROL_CHARACTER = "control character"
EMPTY_SIDE = "empty side"
COLUMNS = "not two columns"


class CorpusError(ValueError):
    """A corpus that cannot be read; the message names the corpus, the file and the line."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A source and a target sentence and the line, counted from 1, on which they stand."""

    line: int
    src: str
    tgt: str


@dataclasses.dataclass(frozen=True)
class Example:
    """One dropped pair: the file and line to look at, why it was dropped, and a closer word."""

    file: str
    line: int
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}: {self.detail}"


@dataclasses.dataclass
class Drops:
    """How many pairs were left out, by reason, and the first few of each reason."""

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    examples: list[Example] = dataclasses.field(default_factory=list)
    examples_per_reason: int = 5

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, reason: str, *, file: str, line: int, detail: str) -> None:
        count = self.counts.get(reason, 0)
        self.counts[reason] = count + 1
        if count < self.examples_per_reason:
            self.examples.append(Example(file, line, reason, detail))

    def describe(self) -> str:
        """The counts in one line: "3 empty side, 1 invalid UTF-8"."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.counts.items())


def read_pairs(
    corpus: CorpusConfig, folder: str = "", *, drops: Drops | None = None, key: str = ""
) -> Iterator[Pair]:
    """The corpus's pairs in order, streaming.

    A pair with invalid UTF-8, a control character, an empty side or (TSV) another number of
    columns than two is counted in `drops`; without `drops` it raises, for corpora such as test
    sets of which nothing may be left out. A tab inside a sentence of a parallel file is text.
    `key` is the corpus's place in the configuration, for messages.

    Raises:
      CorpusError: a file that is missing, damaged or not what its name says, sides with
        different numbers of lines, or a defective pair where `drops` is None.
    """
    key = key or corpus.name or "corpus"
    if corpus.kind == "synthetic":
        yield from _read_synthetic(corpus, key)
        return
    sides = list(files(corpus, folder, key=key).values())
    raw = _two_files(*sides) if corpus.kind == "files" else _two_columns(sides[0])
    for line, columns in enumerate(raw, 1):
        defect = _defect(columns, sides)
        if defect is None:
            src, tgt = columns
            yield Pair(line, src.decode("utf-8"), tgt.decode("utf-8"))
        elif drops is None:
            path, reason, detail = defect
            raise CorpusError(
                f"{path}:{line}: {reason}: {detail} ({key}); no pair of this corpus may be left "
                f"out: correct the line"
            )
        else:
            path, reason, detail = defect
            drops.add(reason, file=str(path), line=line, detail=detail)


def files(corpus: CorpusConfig, folder: str = "", *, key: str = "") -> dict[str, Path]:
    """The files of a corpus by setting name, existence checked; none for the built-in grammar.

    Raises:
      CorpusError: a setting is empty or its file is missing; the message names the setting.
    """
    key = key or corpus.name or "corpus"
    if corpus.kind == "synthetic":
        return {}
    found = {}
    for name in ("src", "tgt") if corpus.kind == "files" else ("path",):
        setting = getattr(corpus, name)
        if not setting:
            raise CorpusError(f"{key}.{name} is not set: a corpus of kind {corpus.kind!r} needs it")
        path = Path(setting).expanduser()
        if not path.is_absolute():
            path = Path(folder).expanduser() / path
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            raise CorpusError(
                f"{key}.{name}: {path} {what}; set {key}.{name}, or data.folder, in which "
                f"relative paths stand (now {folder!r})"
            )
        found[name] = path
    return found


def _read_synthetic(corpus: CorpusConfig, key: str) -> Iterator[Pair]:
    if corpus.size <= 0:
        raise CorpusError(f"{key}.size is {corpus.size}: say how many pairs to make")
    # The grammar's lexicon is read for nobody else.
    from flaxformer_mt.data import synthetic

    for line, (src, tgt) in enumerate(synthetic.pairs(corpus.split, corpus.size), 1):
        yield Pair(line, src, tgt)


def _two_files(src_path: Path, tgt_path: Path) -> Iterator[list[bytes]]:
    """Aligned lines of two files; raises at the end if one side has more."""
    src_lines, tgt_lines = _lines(src_path), _lines(tgt_path)
    for count in itertools.count():
        src, tgt = next(src_lines, None), next(tgt_lines, None)
        if src is not None and tgt is not None:
            yield [src, tgt]
            continue
        if src is None and tgt is None:
            return
        src_count = count + (src is not None) + sum(1 for _ in src_lines)
        tgt_count = count + (tgt is not None) + sum(1 for _ in tgt_lines)
        raise CorpusError(
            f"{src_path} has {src_count:,} lines and {tgt_path} has {tgt_count:,}: the sides of a "
            f"parallel corpus must have one line for each pair"
        )


def _two_columns(path: Path) -> Iterator[list[bytes]]:
    for line in _lines(path):
        yield line.split(b"\t")


def _defect(columns: list[bytes], sides: list[Path]) -> tuple[Path, str, str] | None:
    """What is wrong with a raw pair: the file, the reason and a closer word; None if sound."""
    if len(columns) != 2:
        return sides[0], COLUMNS, f"{len(columns) - 1} tabs where there should be one"
    of_sides = zip(("source", "target"), columns, (sides[0], sides[-1]), strict=True)
    for side, text, path in of_sides:
        where = f" of the {side} column" if len(sides) == 1 else ""
        if control := _CONTROL.search(text):
            detail = f"U+{control.group()[0]:04X} at byte {control.start() + 1}{where}"
            return path, CONTROL_CHARACTER, detail
        try:
            decoded = text.decode("utf-8")
        except UnicodeDecodeError as error:
            detail = f"byte 0x{text[error.start]:02X} at byte {error.start + 1}{where}"
            return path, INVALID_UTF8, detail
        if not decoded.strip():
            return path, EMPTY_SIDE, f"the {side} is blank"
    return None


def _lines(path: Path) -> Iterator[bytes]:
    """The file's lines without their ends; a "\\r" before "\\n" belongs to the end."""
    count = 0
    try:
        with _open(path) as stream:
            for line in stream:
                if count == 0:
                    line = line.removeprefix(_UTF8_BOM)
                count += 1
                yield line.removesuffix(b"\n").removesuffix(b"\r")
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise CorpusError(
            f"{path}: cannot be read beyond line {count:,}: {error}; the file is damaged or "
            f"incomplete: fetch it again"
        ) from error


def _open(path: Path) -> BinaryIO:
    """The file's bytes, decompressed as its name says and its first bytes confirm."""
    named = _SUFFIXES.get(path.suffix.lower(), "")
    if named and named not in _READABLE:
        raise CorpusError(f"{path}: {named} files are not read: use .gz, .xz or plain text")
    with open(path, "rb") as stream:
        head = stream.read(8)
    begins = next((form for magic, form in _MAGIC.items() if head.startswith(magic)), "")
    if begins == "UTF-16":
        raise CorpusError(f"{path}: is UTF-16 text: convert it to UTF-8")
    if named != begins:
        what = f"is {begins} data" if begins else f"begins with {head!r}" if head else "is empty"
        expected = f"{named} data" if named else "plain text"
        raise CorpusError(f"{path}: {what} where its name says {expected}: rename or replace it")
    raw = _READABLE[named](path, "rb") if named else open(path, "rb", buffering=0)
    return cast(BinaryIO, io.BufferedReader(raw, 1 << 20))
