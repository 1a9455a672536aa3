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
    record_of,
)
from flaxformer_mt.data.corpus.text_files import LONGEST, START, LinePlace, are_plain, lines
from flaxformer_mt.files.reading import AnyPath

_HEADER = NoText(HEADER, "the names of the columns")
_DELIMITERS = (",", ";", "\t")  # a semicolon where commas are decimal points
_SHOWN = 8  # names of columns in a message
_LOOKED_AT = 200  # lines that tell the delimiter
_LONGEST_VALUE = 1000  # lines; a longer one is a quotation mark too many


def open_tab_separated(settings: TabSeparated, folder: str, key: str) -> PairSource:
    """A file whose lines have columns between tabs; quotation marks are text. Raises
    CorpusError."""
    path = paths.require_file(settings.path, folder, f"{key}.path")
    texts: Callable[[Any], CorpusRecord] = two_columns
    read: Callable[[AnyPath], Iterator[bytes | NoText]] = lines
    if settings.sides is not None:
        header = next(lines(path), b"").split(b"\t")
        places, are_named = _places(settings.columns, _decoded(header), f"{key}: {path}")
        count = len(header) if are_named else 0
        texts = functools.partial(chosen_columns, places=places, count=count)
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
    columns = settings.columns
    if _is_numbered(columns):
        _places(columns, [], place)  # raises its errors before columns are counted
    delimiter, header = _delimiter(path, columns, place)
    places, are_named = _places(columns, header, place)
    count = len(header) if are_named else 0
    return PairSource(
        {"path": path},
        str(path),
        (functools.partial(rows, path, delimiter, skips_header=are_named),),
        functools.partial(_cells, places=places, count=count),
        where=" of the {side} column",
    )


def two_columns(line: bytes) -> CorpusRecord:
    """Source and target of a line with one tab."""
    columns = line.split(b"\t")
    if len(columns) != 2:
        return NoText(COLUMNS, f"{len(columns) - 1} tabs where there should be one")
    src, tgt = columns
    return src, tgt


def chosen_columns(line: bytes | NoText, places: Sequence[int], count: int) -> CorpusRecord:
    """Source, target and perhaps weight of a line with tabs, which stand in these columns, from 0,
    of `count` (0: any number)."""
    return line if isinstance(line, NoText) else _cells(line.split(b"\t"), places, count)


def rows(path: AnyPath, delimiter: str, *, skips_header: bool) -> Iterator[list[bytes] | NoText]:
    """The cells of each line of comma-separated values, or why it has none. Raises CorpusError.

    A value in quotation marks may go on for some lines, but no sentence does: none of them is a
    pair. If its end isn't found there, only its first line is lost.
    """
    following = _Lines(lines(path))
    if skips_header:
        _, count = following.row(delimiter)
        yield from itertools.repeat(_HEADER, count)

    cells, count = following.row(delimiter)
    while count:
        if count > 1:
            cells = NoText(BROKEN_LINE, f"a value spans {count} lines")
        yield from itertools.repeat(cells, count)
        cells, count = following.row(delimiter)


class _Lines:
    """Lines of comma-separated values, read row by row."""

    def __init__(self, read: Iterator[bytes]) -> None:
        self._read = read
        self._ahead = collections.deque[bytes]()

    def row(self, delimiter: str) -> tuple[list[bytes] | NoText, int]:
        """The next row's cells, or why it has none, and how many lines it takes: 0 after the
        last."""
        line = self._next()
        if line is None:
            return [], 0
        cells = _cells_of([line], delimiter)
        if isinstance(cells, NoText) and line.count(b'"') % 2:
            taken = self.value_from(line, delimiter)
            if taken:
                return _cells_of([line, *taken], delimiter), 1 + len(taken)
        return cells, 1

    def _next(self) -> bytes | None:
        """The next line, None after the last."""
        return self._ahead.popleft() if self._ahead else next(self._read, None)

    def value_from(self, line: bytes, delimiter: str) -> list[bytes]:
        """Takes the further lines of a value that begins in this one; none if its end isn't among
        the next few."""
        taken: list[bytes] = []
        while len(taken) < _LONGEST_VALUE and (another := self._next()) is not None:
            taken.append(another)
            if another.count(b'"') % 2:
                if not isinstance(_cells_of([line, *taken], delimiter), NoText):
                    return taken
                break
        self._ahead.extendleft(reversed(taken))
        return []


def _cells_of(record: Sequence[bytes], delimiter: str) -> list[bytes] | NoText:
    """The cells of a row, which may take several lines."""
    csv.field_size_limit(LONGEST)  # as for lines
    # Bytes that aren't UTF-8 come back as they were.
    decoded = [line.decode(errors="surrogateescape") + "\n" for line in record]
    try:
        reader = csv.reader(decoded, delimiter=delimiter, strict=True, skipinitialspace=True)
        parsed = list(reader)
    except csv.Error as error:
        return NoText(MALFORMED_CSV, str(error))
    if len(parsed) != 1:
        return NoText(MALFORMED_CSV, "several rows where there should be one")
    return [cell.strip().encode(errors="surrogateescape") for cell in parsed[0]]


def _after_header(path: AnyPath, place: LinePlace = START) -> Iterator[bytes | NoText]:
    """The file's lines, with a note in place of the first."""
    read: Iterator[bytes | NoText] = lines(path, place)
    if place.first == 0:
        next(read, None)
        yield _HEADER
    yield from read


def _cells(cells: Sequence[bytes] | NoText, places: Sequence[int], count: int) -> CorpusRecord:
    if isinstance(cells, NoText):
        return cells
    present = f"{len(cells)} column{'' if len(cells) == 1 else 's'}"
    if count and len(cells) != count:
        return NoText(COLUMNS, f"{present} where the first line has {count}")
    if len(cells) <= max(places):
        return NoText(COLUMNS, f"{present} where there should be {1 + max(places)} or more")
    return record_of(*(cells[place] for place in places))


def _decoded(cells: Sequence[bytes]) -> list[str]:
    return [cell.decode(errors="replace").strip() for cell in cells]


def _delimiter(path: AnyPath, columns: Sequence[str], place: str) -> tuple[str, list[str]]:
    """What separates the values of a file, and its first row. Raises CorpusError if several
    delimiters would do.

    It is the one with which the first line names the columns. Of numbered ones it is the one with
    which most of the first lines have equally many values, and as many as are needed.
    """
    first_rows, fitting = {}, collections.Counter[str]()
    for delimiter in _DELIMITERS:
        cells, _ = _Lines(lines(path)).row(delimiter)
        first_rows[delimiter] = [] if isinstance(cells, NoText) else _decoded(cells)
        if _is_numbered(columns):
            read = itertools.islice(rows(path, delimiter, skips_header=False), _LOOKED_AT)
            counts = collections.Counter(
                len(cells) for cells in read if not isinstance(cells, NoText)
            )
            enough = [counts[count] for count in counts if count >= max(map(int, columns))]
            fitting[delimiter] = max(enough, default=0)
        else:
            fitting[delimiter] = int({*columns} <= {*first_rows[delimiter]})

    (best, fits), (second, fits_too), *_ = fitting.most_common()
    if fits and fits == fits_too:
        raise CorpusError(
            f"{place}: {best!r} or {second!r} may separate its values: write names of columns in "
            "its first line, and give these"
        )
    return (best, first_rows[best]) if fits else (",", first_rows[","])


def _places(
    columns: Sequence[str], header: Sequence[str], place: str
) -> tuple[tuple[int, ...], bool]:
    """The columns, from 0, and whether the first line has their names. Raises CorpusError."""
    if _is_numbered(columns):
        numbers = tuple(int(column) - 1 for column in columns)
        if min(numbers) < 0:
            raise CorpusError(f"{place}: columns are numbered from 1")
        return numbers, False
    for column in columns:
        if column not in header:
            shown = ", ".join(map(repr, header[:_SHOWN])) or "none"
            raise CorpusError(
                f"{place}:1: has no column {column!r}; there: {shown}; or give all columns by "
                "their numbers, from 1"
            )
        if header.count(column) > 1:
            raise CorpusError(
                f"{place}:1: has several columns {column!r}: give the number of one, from 1"
            )
    return tuple(map(header.index, columns)), True


def _is_numbered(columns: Sequence[str]) -> bool:
    return all(column.isascii() and column.isdigit() for column in columns)
