"""Sentences in two columns of parquet files, local ones or a data set's on the Hugging Face hub."""

from __future__ import annotations

import dataclasses
import functools
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

from flaxformer_mt.config.kinds import HUB, ParquetFiles
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.json_records import (
    first_name,
    number_at,
    parsed,
    text_at,
    trimmed,
)
from flaxformer_mt.data.corpus.pairs import (
    NO_TEXT,
    NO_WEIGHT,
    CorpusError,
    CorpusRecord,
    NoText,
    PairSource,
    record_of,
)
from flaxformer_mt.files import hub
from flaxformer_mt.files.reading import AnyPath

_ROWS = 4096  # taken from a file at a time
_BUFFER = 1 << 20  # bytes of each column; otherwise a group of rows is read whole


def open_files(settings: ParquetFiles, folder: str, key: str, *, download: bool) -> PairSource:
    """The files that match a pattern; of the hub's only downloaded ones without `download`.

    Raises CorpusError.
    """
    if settings.path.startswith(HUB):
        matches = _hub_files(settings.path, f"{key}.path", download=download)
    else:
        matches = paths.require_matches(settings.path, folder, f"{key}.path")
    files = {f"path[{number}]": path for number, path in enumerate(matches)}
    readers = tuple(functools.partial(_rows, path, settings.columns) for path in matches)
    return PairSource(files, settings.path, readers, _record)


def _hub_files(address: str, key: str, *, download: bool) -> tuple[AnyPath, ...]:
    """The files that an address of the hub names, by name. Raises CorpusError."""
    match = re.fullmatch("([^/]+/[^/]+)/(.+)", address.removeprefix(HUB))
    # An address writes a branch's slashes as %2F.
    repository = hub.address(urllib.parse.unquote(match[1])) if match else None
    if match is None or repository is None:
        raise CorpusError(f"{key}: {address}: write {HUB}ORG/NAME/PATTERN or ORG/NAME@REVISION")
    pattern = match[2]
    try:
        folder = hub.fetch(repository, [pattern], kind="dataset", download=download)
    except hub.HubError as error:
        raise CorpusError(f"{key}: {error}") from error
    files = tuple(sorted(path for path in folder.glob(pattern) if path.is_file()))
    if not files:
        raise CorpusError(f"{key}: dataset {repository} has no file that matches {pattern}")
    return files


def _record(texts: tuple[bytes | NoText, ...]) -> CorpusRecord:
    return record_of(*map(trimmed, texts))


def _rows(path: AnyPath, keys: Sequence[str]) -> Iterator[tuple[bytes | NoText, ...]]:
    """Each row's two sides, and its weight if there is a third key."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with (
            paths.open_binary(path) as stream,
            pq.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False) as file,
        ):
            columns = [
                _Column.of(file.schema_arrow, key, path, is_number=number == 2)
                for number, key in enumerate(keys)
            ]
            needed = [".".join(column.names) for column in columns]
            for batch in file.iter_batches(_ROWS, columns=needed):
                yield from zip(*(column.texts(batch) for column in columns), strict=True)
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{path}: cannot be read as parquet: {error}; write it again") from error


@dataclasses.dataclass(frozen=True)
class _Column:
    """Where a key leads: a column, fields of structs, and a key of its maps or JSON objects."""

    key: str
    names: tuple[str, ...]
    within: str | None
    is_number: bool = False

    @classmethod
    def of(cls, schema: Any, key: str, path: AnyPath, *, is_number: bool = False) -> _Column:
        """Raises CorpusError for a key that leads to no text nor, for a weight, to numbers."""
        import pyarrow as pa

        names: list[str] = []
        kind, fields = pa.null(), list(schema)
        remaining: str | None = key
        while remaining is not None and not _has_keys(kind):
            if names and not fields:
                raise CorpusError(
                    f"{path}: has no column {key!r}: column {'.'.join(names)!r} holds {kind}, "
                    "which has no parts"
                )
            types = {field.name: field.type for field in fields}
            name, remaining = first_name(remaining, types)
            if name not in types:
                present = ", ".join(map(repr, types)) or "none"
                raise CorpusError(f"{path}: has no column {key!r}; there: {present}")
            names.append(name)
            kind = _decoded(types[name])
            fields = list(kind) if pa.types.is_struct(kind) else []

        if remaining is None:
            _require_type(kind, key, path, is_number=is_number)
        return cls(key, tuple(names), remaining, is_number)

    def texts(self, batch: Any) -> Iterator[bytes | NoText]:
        """The text of each row, or why it has none."""
        import pyarrow as pa

        first, *fields = self.names
        column = batch.column(first)
        for name in fields:
            column = column.flatten()[column.type.get_field_index(name)]
        if isinstance(column.type, pa.BaseExtensionType):
            # pyarrow 26 gives other bytes for one that stores a `string_view`, also if it is cast
            # as it is, or taken by `struct_field`.
            column = column.storage
        if self.within is None:
            if _is_number(column.type):
                column = column.cast(pa.large_string())
            for text in column.cast(pa.large_binary()).to_pylist():
                reason = NO_WEIGHT if self.is_number else NO_TEXT
                yield NoText(reason, f"{self.key!r} is null") if text is None else text
            return
        if pa.types.is_map(column.type):
            objects = column.to_pylist(maps_as_pydicts="lossy")
        else:
            objects = column.cast(pa.large_binary()).to_pylist()
        for content in objects:
            yield self._text_in(content)

    def _text_in(self, content: Any) -> bytes | NoText:
        if content is None:
            return NoText(NO_TEXT, f"{'.'.join(self.names)!r} is null")
        assert self.within is not None
        value_at = number_at if self.is_number else text_at
        if isinstance(content, bytes):
            return value_at(parsed(content), self.within)
        # Some writers' keys are bytes.
        named = {
            key.decode(errors="replace") if isinstance(key, bytes) else key: entry
            for key, entry in content.items()
        }
        return value_at(named, self.within)


def _has_keys(kind: Any) -> bool:
    """Whether each row has keys of its own."""
    import pyarrow as pa

    return pa.types.is_map(kind) or isinstance(kind, pa.JsonType)


def _advice(key: str, kind: Any) -> str:
    """A longer key that leads into a column of this type, if there is one."""
    import pyarrow as pa

    if _has_keys(kind):
        return f"; use {key}.KEY, such as {key}.en"
    fields = list(kind) if pa.types.is_struct(kind) else []
    return f"; use {key}.{fields[0].name} or similar" if fields else ""


def _decoded(kind: Any) -> Any:
    """The type of a dictionary's values: pandas writes categories and repeated texts so."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _require_type(kind: Any, key: str, path: AnyPath, *, is_number: bool) -> None:
    """Raises CorpusError for a column without text, or of weights that can't be read."""
    if _is_text(kind) or (is_number and _is_number(kind)):
        return
    if is_number:
        raise CorpusError(f"{path}: column {key!r} holds {kind}, not numbers")
    raise CorpusError(f"{path}: column {key!r} holds {kind}, not text{_advice(key, kind)}")


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _is_text(kind: Any) -> bool:
    """Whether it may hold UTF-8: older writers leave texts unmarked, as bytes."""
    import pyarrow as pa

    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
    )
    return any(test(kind) for test in tests)
