"""Sentences under two keys: JSON objects (`jsonl`, `array_record`) and parquet rows (`hf`)."""

import functools
import json
import re
import urllib.parse
from collections.abc import Iterator
from typing import Any

from flaxformer_mt.config import CorpusConfig
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.pairs import (
    INVALID_UTF8,
    MALFORMED_JSON,
    NO_TEXT,
    CorpusError,
    NoText,
    Source,
)
from flaxformer_mt.data.corpus.paths import AnyPath
from flaxformer_mt.files import hub


def texts_at(record: bytes, src: str, tgt: str) -> tuple[bytes, bytes]:
    """The texts of a JSON record under two keys. Raises NoText."""
    value = parsed(record)
    return text_at(value, src), text_at(value, tgt)


def parsed(record: bytes) -> Any:
    """The value of a JSON record. Raises NoText."""
    try:
        return json.loads(record.decode())
    except UnicodeDecodeError as error:
        detail = f"byte 0x{record[error.start]:02X} at byte {error.start + 1}"
        raise NoText(INVALID_UTF8, detail) from None
    except json.JSONDecodeError as error:
        raise NoText(MALFORMED_JSON, f"{error.msg} at character {error.pos + 1}") from None
    # Numbers of thousands of digits; brackets within thousands of brackets.
    except (ValueError, RecursionError) as error:
        raise NoText(MALFORMED_JSON, str(error)) from None


def text_at(value: Any, key: str) -> bytes:
    """The UTF-8 text under a key; a dot enters an object. Raises NoText."""
    for name in key.split("."):
        if not isinstance(value, dict):
            raise NoText(NO_TEXT, f"no object with {key!r}: {json.dumps(value)[:40]}")
        if name not in value:
            present = ", ".join(map(repr, list(value)[:8])) or "none"
            raise NoText(NO_TEXT, f"no key {key!r}; keys there: {present}")
        value = value[name]
    if not isinstance(value, str):
        raise NoText(NO_TEXT, f"{key!r} is {json.dumps(value)[:40]}, not a string")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        surrogate = ord(value[error.start])
        raise NoText(INVALID_UTF8, f"half a character, U+{surrogate:04X}, in {key!r}") from None


HUB = "hf://datasets/"
_ROWS = 4096  # taken from a file at a time
_BUFFER = 1 << 20  # bytes of each column; otherwise a group of rows is read whole


def open_files(corpus: CorpusConfig, folder: str, key: str, *, fetch: bool) -> Source:
    """The files of a corpus of kind `hf`, of the hub only earlier ones without `fetch`."""
    if corpus.path.startswith(HUB):
        asked = re.fullmatch("([^/]+/[^/]+)/(.+)", corpus.path.removeprefix(HUB))
        # An address writes a branch's slashes as %2F.
        repository = asked and hub.address(urllib.parse.unquote(asked[1]))
        if asked is None or repository is None:
            wanted = f"write {HUB}ORG/NAME/PATTERN or ORG/NAME@REVISION"
            raise CorpusError(f"{key}.path: {corpus.path}: {wanted}")
        try:
            within = hub.fetch(repository, [asked[2]], kind="dataset", download=fetch)
        except hub.HubError as error:
            raise CorpusError(f"{key}.path: {error}") from error
        found = tuple(sorted(each for each in within.glob(asked[2]) if each.is_file()))
        if not found:
            none = f"dataset {repository} has no file that matches {asked[2]}"
            raise CorpusError(f"{key}.path: {none}")
    else:
        found = paths.require_matches(corpus.path, folder, f"{key}.path")
    files = {f"path[{number}]": path for number, path in enumerate(found)}
    keys = corpus.src, corpus.tgt
    parts = tuple(functools.partial(_rows, path, keys) for path in found)
    return Source(files, corpus.path, parts, functools.partial(_not_null, keys))


def _not_null(keys: tuple[str, str], pair: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    for key, text in zip(keys, pair, strict=True):
        if text is None:
            raise NoText(NO_TEXT, f"{key!r} is null")
    return pair


def _rows(path: AnyPath, keys: tuple[str, str]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        with (
            paths.open_binary(path) as stream,
            pq.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False) as file,
        ):
            places = [_place(file.schema_arrow, key, path) for key in keys]
            for batch in file.iter_batches(_ROWS, columns=[".".join(place) for place in places]):
                src, tgt = (
                    pc.struct_field(batch.to_struct_array(), place).cast(pa.large_binary())
                    for place in places
                )
                yield from zip(src.to_pylist(), tgt.to_pylist(), strict=True)
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{path}: cannot be read as parquet: {error}; write it again") from error


def _place(schema: Any, key: str, path: AnyPath) -> list[str]:
    import pyarrow as pa

    names = [key] if key in schema.names else key.split(".")
    kind, fields = None, list(schema)
    for name in names:
        if name not in (present := {field.name: field.type for field in fields}):
            there = ", ".join(map(repr, present)) or "none"
            raise CorpusError(f"{path}: has no column {key!r}; there: {there}")
        kind = present[name]
        fields = kind.fields if pa.types.is_struct(kind) else []
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        within = "".join(f"; use {key}.{field.name} or similar" for field in fields[:1])
        raise CorpusError(f"{path}: column {key!r} holds {kind}, not text{within}")
    return names
