"""Two columns of a table: text between tabs, or comma-separated values with quotation marks.

A column is a number, from 1, or a name in the first line. Without columns a table of tabs has two.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flaxformer_mt.config.kinds import CommaSeparated, TabSeparated
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.pairs import (
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
        is_bare_text=True,
    )


def open_comma_separated(settings: CommaSeparated, folder: str, key: str) -> PairSource:
    """A file of comma-separated values; a value in quotation marks may have commas and line ends.
    Raises CorpusError."""
    path = paths.require_file(settings.path, folder, f"{key}.path")
    delimiter, header = _delimiter(path, settings.sides)
    places, are_named = _places(settings.sides, header, f"{key}: {path}")
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
    """The rows of a file of comma-separated values, each as its cells; of one that isn't well
    formed, why. Raises CorpusError."""
    # Bytes that aren't UTF-8 come back as they were.
    decoded = (line.decode(errors="surrogateescape") + "\n" for line in lines(path))
    reader = csv.reader(decoded, delimiter=delimiter, strict=True)
    if skips_header:
        next(reader, None)
        yield _HEADER
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield NoText(MALFORMED_CSV, f"{error}, up to line {reader.line_num:,}")
        else:
            yield [cell.strip().encode(errors="surrogateescape") for cell in cells]


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


def _delimiter(path: AnyPath, sides: tuple[str, str]) -> tuple[str, list[str]]:
    """What separates the values of a file, and its first row: the first delimiter with which that
    has the columns, or else a comma. Raises CorpusError."""
    first_rows = {}
    for delimiter in _DELIMITERS:
        cells = next(rows(path, delimiter, skips_header=False), [])
        first_rows[delimiter] = [] if isinstance(cells, NoText) else _decoded(cells)
    for delimiter, row in first_rows.items():
        if _is_numbered(sides):
            has_columns = max(map(int, sides)) <= len(row)
        else:
            has_columns = {*sides} <= {*row}
        if has_columns:
            return delimiter, row
    return ",", first_rows[","]


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
