"""Two columns of a table: text between tabs, or comma-separated values with quotation marks.

A column is a number, from 1, or a name in the first line. Without columns a table of tabs has two.
"""

from __future__ import annotations

import collections
import csv
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flaxformer_mt.config.kinds import CommaSeparated, TabSeparated
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.pairs import (
    BROKEN_LINE,
    COLUMNS,
    HEADER,
    MALFORMED_CSV,
    CorpusError,
    CorpusRecord,
    NoText,
    PairSource,
)
from flaxformer_mt.data.corpus.text_files import START, LinePlace, are_plain, lines
from flaxformer_mt.files.reading import AnyPath

_HEADER = NoText(HEADER, "the names of the columns")
_DELIMITERS = (",", ";", "\t")  # a semicolon where commas are decimal points
_SHOWN = 8  # names of columns in a message
_LOOKED_AT = 200  # lines that tell the delimiter
_LONGEST_VALUE = 100  # lines; a longer one is a quotation mark too many


def open_tab_separated(settings: TabSeparated, folder: str, key: str) -> PairSource:
    """A file whose lines have columns between tabs; quotation marks are text. Raises
    CorpusError."""
    path = paths.require_file(settings.path, folder, f"{key}.path")
    texts: Callable[[Any], CorpusRecord] = two_columns
    read: Callable[[AnyPath], Iterator[bytes | NoText]] = lines
    if settings.sides is not None:
        header = next(lines(path), b"").split(b"\t")
        places, are_named = _places(settings.sides, _decoded(header), f"{key}: {path}")
        texts = functools.partial(chosen_columns, places=places)
        read = _after_header if are_named else lines
    return PairSource(
        {"path": path},
        str(path),
        (functools.partial(read, path),),
        texts,
        where=" of the {side} column",
        is_seekable=are_plain(path),
        is_bare_text=settings.sides is None,  # or there are other columns
    )


def open_comma_separated(settings: CommaSeparated, folder: str, key: str) -> PairSource:
    """A file of comma-separated values; a value in quotation marks may have commas and line ends.
    Raises CorpusError."""
    path = paths.require_file(settings.path, folder, f"{key}.path")
    place = f"{key}: {path}"
    delimiter, header = _delimiter(path, settings.sides, place)
    places, are_named = _places(settings.sides, header, place)
    return PairSource(
        {"path": path},
        str(path),
        (functools.partial(rows, path, delimiter, skips_header=are_named),),
        functools.partial(_cells, places=places),
        where=" of the {side} column",
    )


def two_columns(line: bytes) -> CorpusRecord:
    """Source and target of a line with one tab."""
    columns = line.split(b"\t")
    if len(columns) != 2:
        return NoText(COLUMNS, f"{len(columns) - 1} tabs where there should be one")
    src, tgt = columns
    return src, tgt


def chosen_columns(line: bytes | NoText, places: tuple[int, int]) -> CorpusRecord:
    """Source and target of a line with tabs, which stand in these columns, from 0."""
    return line if isinstance(line, NoText) else _cells(line.split(b"\t"), places)


def rows(path: AnyPath, delimiter: str, *, skips_header: bool) -> Iterator[list[bytes] | NoText]:
    """The cells of each line of comma-separated values, or why it has none. Raises CorpusError.

    A value in quotation marks may go on for some lines, but no sentence does: none of them is a
    pair. If its end isn't found there, only its first line is lost.
    """
    following = _Lines(lines(path))
    if skips_header and following.next() is not None:
        yield _HEADER
    while (line := following.next()) is not None:
        cells = _cells_of([line], delimiter)
        if isinstance(cells, NoText) and line.count(b'"') % 2:
            count = _lines_of_value(line, following, delimiter)
            if count:
                cells = NoText(BROKEN_LINE, f"a value goes on for {count} lines")
                yield from itertools.repeat(cells, count - 1)
        yield cells


class _Lines:
    """Lines that can be put back."""

    def __init__(self, read: Iterator[bytes]) -> None:
        self._read = read
        self._ahead = collections.deque[bytes]()

    def next(self) -> bytes | None:
        """The next line, None after the last."""
        return self._ahead.popleft() if self._ahead else next(self._read, None)

    def put_back(self, taken: Sequence[bytes]) -> None:
        self._ahead.extendleft(reversed(taken))


def _lines_of_value(line: bytes, following: _Lines, delimiter: str) -> int:
    """How many lines a value takes that begins in this one, and takes the others; 0, and takes
    none, if its end isn't among the next few."""
    taken: list[bytes] = []
    while len(taken) < _LONGEST_VALUE and (another := following.next()) is not None:
        taken.append(another)
        if another.count(b'"') % 2:
            if not isinstance(_cells_of([line, *taken], delimiter), NoText):
                return 1 + len(taken)
            break
    following.put_back(taken)
    return 0


def _cells_of(record: Sequence[bytes], delimiter: str) -> list[bytes] | NoText:
    """The cells of a row, which may take several lines."""
    # Bytes that aren't UTF-8 come back as they were.
    decoded = [line.decode(errors="surrogateescape") + "\n" for line in record]
    try:
        parsed = list(csv.reader(decoded, delimiter=delimiter, strict=True))
    except csv.Error as error:
        return NoText(MALFORMED_CSV, str(error))
    if len(parsed) != 1:
        return NoText(MALFORMED_CSV, "lines of their own")
    return [cell.strip().encode(errors="surrogateescape") for cell in parsed[0]]


def _after_header(path: AnyPath, place: LinePlace = START) -> Iterator[bytes | NoText]:
    """The file's lines, with a note in place of the first."""
    read: Iterator[bytes | NoText] = lines(path, place)
    if place.first == 0:
        next(read, None)
        yield _HEADER
    yield from read


def _cells(cells: Sequence[bytes] | NoText, places: tuple[int, int]) -> CorpusRecord:
    if isinstance(cells, NoText):
        return cells
    if len(cells) <= max(places):
        count = f"{len(cells)} column{'' if len(cells) == 1 else 's'}"
        return NoText(COLUMNS, f"{count} where there should be {1 + max(places)} or more")
    return cells[places[0]], cells[places[1]]


def _decoded(cells: Sequence[bytes]) -> list[str]:
    return [cell.decode(errors="replace").strip() for cell in cells]


def _delimiter(path: AnyPath, sides: tuple[str, str], place: str) -> tuple[str, list[str]]:
    """What separates the values of a file, and its first row. Raises CorpusError if several
    delimiters would do.

    It is the one with which the first line names the columns. Of numbered ones it is the one with
    which most of the first lines have equally many values, and as many as are needed.
    """
    first_rows, fitting = {}, collections.Counter[str]()
    for delimiter in _DELIMITERS:
        read = itertools.islice(rows(path, delimiter, skips_header=False), _LOOKED_AT)
        looked_at = [_decoded(cells) for cells in read if not isinstance(cells, NoText)]
        first_rows[delimiter] = looked_at[0] if looked_at else []
        if _is_numbered(sides):
            counts = collections.Counter(map(len, looked_at))
            enough = [counts[count] for count in counts if count >= max(map(int, sides))]
            fitting[delimiter] = max(enough, default=0)
        else:
            fitting[delimiter] = int({*sides} <= {*first_rows[delimiter]})

    (best, fits), (second, fits_too), *_ = fitting.most_common()
    if fits and fits == fits_too:
        raise CorpusError(
            f"{place}: {best!r} or {second!r} may separate its values: write names of columns in "
            "its first line, and give these"
        )
    return (best, first_rows[best]) if fits else (",", first_rows[","])


def _places(
    sides: tuple[str, str], header: Sequence[str], place: str
) -> tuple[tuple[int, int], bool]:
    """The columns, from 0, and whether the first line has their names. Raises CorpusError."""
    if _is_numbered(sides):
        src, tgt = (int(side) - 1 for side in sides)
        if min(src, tgt) < 0:
            raise CorpusError(f"{place}: columns are numbered from 1")
        return (src, tgt), False
    for side in sides:
        if side not in header:
            shown = ", ".join(map(repr, header[:_SHOWN])) or "none"
            raise CorpusError(
                f"{place}:1: has no column {side!r}; there: {shown}; or give its number, from 1"
            )
        if header.count(side) > 1:
            raise CorpusError(
                f"{place}:1: has several columns {side!r}: give the number of one, from 1"
            )
    return (header.index(sides[0]), header.index(sides[1])), True


def _is_numbered(sides: tuple[str, str]) -> bool:
    return all(side.isascii() and side.isdigit() for side in sides)
