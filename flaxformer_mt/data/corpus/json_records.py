"""Sentences under two keys of JSON objects: lines of a file, an array, or ArrayRecord shards."""

from __future__ import annotations

import functools
import json
from collections.abc import Container, Iterator, Sequence
from typing import Any

from flaxformer_mt.config.kinds import ArrayRecords, JsonLines
from flaxformer_mt.data.corpus import paths
from flaxformer_mt.data.corpus.pairs import (
    INVALID_UTF8,
    MALFORMED_JSON,
    NO_TEXT,
    NO_WEIGHT,
    CorpusError,
    CorpusRecord,
    NoText,
    PairSource,
    record_of,
)
from flaxformer_mt.data.corpus.shards import read_array_record
from flaxformer_mt.data.corpus.text_files import (
    UTF8_BOM,
    are_plain,
    lines,
    open_text,
    readable,
)
from flaxformer_mt.files.reading import AnyPath

_HEAD = 1 << 16  # bytes in which a file's text begins


def open_lines(settings: JsonLines, folder: str, key: str) -> PairSource:
    """A file of one object per line, or one array of them. Raises CorpusError."""
    path = paths.require_file(settings.path, folder, f"{key}.path")
    is_array = _is_array(path)
    return PairSource(
        {"path": path},
        f"{path} (entries)" if is_array else str(path),
        (functools.partial(_entries if is_array else lines, path),),
        functools.partial(_texts_of if is_array else texts_at, keys=settings.columns),
        is_seekable=are_plain(path) and not is_array,
    )


def open_shards(settings: ArrayRecords, folder: str, key: str) -> PairSource:
    """The shards that match a pattern, with one object per record. Raises CorpusError."""
    matches = paths.require_matches(settings.path, folder, f"{key}.path")
    return PairSource(
        {f"path[{number}]": shard for number, shard in enumerate(matches)},
        settings.path,
        tuple(functools.partial(read_array_record, shard) for shard in matches),
        functools.partial(texts_at, keys=settings.columns),
    )


def texts_at(record: bytes, keys: Sequence[str]) -> CorpusRecord:
    """The texts of a JSON record under two keys, and the number under a third one, if given."""
    return _texts_of(parsed(record), keys)


def _is_array(path: AnyPath) -> bool:
    """Whether the file's text begins with a bracket, and not as lines that each are an array.
    Raises CorpusError."""
    with readable(path), open_text(path) as (stream, _):
        begin = stream.read(_HEAD).removeprefix(UTF8_BOM).lstrip()
    first, _, rest = begin.partition(b"\n")
    return begin.startswith(b"[") and (not rest.strip() or isinstance(parsed(first), NoText))


def _entries(path: AnyPath) -> Iterator[Any]:
    """The entries of an array, which is read at once. Raises CorpusError."""
    with readable(path), open_text(path) as (stream, _):
        content = stream.read()
    try:
        entries = json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise CorpusError(f"{path}:{error.lineno}: is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # other than UTF-8, huge numbers or depths
        raise CorpusError(f"{path}: is not JSON: {error}") from error
    yield from entries


def _texts_of(content: Any, keys: Sequence[str]) -> CorpusRecord:
    src, tgt, *pair_weights = keys
    texts = (trimmed(text_at(content, key)) for key in (src, tgt))
    return record_of(*texts, *(number_at(content, key) for key in pair_weights))


def trimmed(text: bytes | NoText) -> bytes | NoText:
    """The text, if any, without white space at its ends, where many programs leave a newline."""
    if isinstance(text, NoText):
        return text
    if text.isascii():
        return text.strip()
    try:
        return text.decode().strip().encode()
    except UnicodeDecodeError:
        return text  # counted as such later


def parsed(record: bytes) -> Any:
    """The value of a JSON record, or NoText."""
    try:
        return json.loads(record.decode())
    except UnicodeDecodeError as error:
        return NoText(INVALID_UTF8, f"byte 0x{record[error.start]:02X} at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        return NoText(MALFORMED_JSON, f"{error.msg} at character {error.pos + 1}")
    # Numbers of thousands of digits; brackets within thousands of brackets.
    except (ValueError, RecursionError) as error:
        return NoText(MALFORMED_JSON, str(error))


def number_at(content: Any, key: str) -> bytes | NoText:
    """The number under a key, written out, or the text there."""
    value = _value_at(content, key)
    if isinstance(value, NoText) and value.reason == NO_TEXT:
        return NoText(NO_WEIGHT, value.detail)
    if isinstance(value, NoText | bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="replace")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value).encode()
    return NoText(NO_WEIGHT, f"{key!r} is {_shown(value)}, not a number")


def text_at(content: Any, key: str) -> bytes | NoText:
    """The UTF-8 text under a key; a dot enters an object, unless it is part of a name.

    `content` is as `parsed` gives it. In parquet a text may be bytes.
    """
    content = _value_at(content, key)
    if isinstance(content, bytes | NoText):
        return content
    if not isinstance(content, str):
        return NoText(NO_TEXT, f"{key!r} is {_shown(content)}, not a string")
    try:
        return content.encode()
    except UnicodeEncodeError as error:
        surrogate = ord(content[error.start])
        return NoText(INVALID_UTF8, f"half a character, U+{surrogate:04X}, in {key!r}")


def _value_at(content: Any, key: str) -> Any:
    """The value under a key, or NoText."""
    if isinstance(content, NoText):
        return content
    remaining: str | None = key
    while remaining is not None:
        if not isinstance(content, dict):
            return NoText(NO_TEXT, f"no object with {key!r}: {_shown(content)}")
        name, remaining = first_name(remaining, content)
        if name not in content:
            present = ", ".join(map(repr, list(content)[:8])) or "none"
            return NoText(NO_TEXT, f"no key {key!r}; keys there: {present}")
        content = content[name]
    return content


def first_name(key: str, present: Container[str]) -> tuple[str, str | None]:
    """The longest name in `present` that a dotted key begins with, and what follows it, if any.

    Without one, the key up to its first dot.
    """
    name = key
    while name not in present and "." in name:
        name = name.rpartition(".")[0]
    if name == key:
        return name, None
    return name, key[len(name) + 1 :]


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)[:40]
