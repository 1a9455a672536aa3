"""Kinds `jsonl` and `array_record`: JSON objects with the sentences under two keys."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flaxformer_mt.data.corpus.pairs import (
    INVALID_UTF8,
    MALFORMED_JSON,
    NO_TEXT,
    Defect,
    defect_of_sides,
)
from flaxformer_mt.data.corpus.paths import AnyPath


class NoText(Exception):
    """Reason and detail of a record in which a text is not found."""


@dataclasses.dataclass(frozen=True)
class JsonRecords:
    """Files read one after the other; record n counts through all of them.

    `src` and `tgt` are keys of an object; a dot leads into an object: "translation.en".
    """

    files: Mapping[str, AnyPath]
    label: str
    """What stands for all files in messages: the file, or what found the shards."""
    read: Callable[[AnyPath], Iterator[bytes]]
    src: str
    tgt: str

    def records(self) -> Iterator[tuple[bytes, ...]]:
        """The two sentences, or the record as it is where they are not found."""
        for path in self.files.values():
            for record in self.read(path):
                found = self._sentences(record)
                yield (record,) if isinstance(found, NoText) else found

    def check(self, columns: tuple[bytes, ...]) -> Defect | None:
        if len(columns) == 2:
            return defect_of_sides(columns, (self.label, self.label), where=" of the {side} text")
        found = self._sentences(columns[0])
        return Defect(self.label, *found.args) if isinstance(found, NoText) else None

    def _sentences(self, record: bytes) -> tuple[bytes, bytes] | NoText:
        """The two sentences, or why there are none."""
        try:
            value = parsed(record)
            return text_at(value, self.src), text_at(value, self.tgt)
        except NoText as why:
            return why


def parsed(record: bytes) -> Any:
    """The value that a record in JSON stands for. Raises NoText."""
    try:
        return json.loads(record.decode("utf-8"))
    except UnicodeDecodeError as error:
        detail = f"byte 0x{record[error.start]:02X} at byte {error.start + 1}"
        raise NoText(INVALID_UTF8, detail) from None
    except json.JSONDecodeError as error:
        raise NoText(MALFORMED_JSON, f"{error.msg} at character {error.pos + 1}") from None
    # Numbers of thousands of digits; brackets within thousands of brackets.
    except (ValueError, RecursionError) as error:
        raise NoText(MALFORMED_JSON, str(error)) from None


def text_at(value: Any, key: str) -> bytes:
    """The text under a key, in UTF-8; a dot enters an object. Raises NoText."""
    for name in key.split("."):
        if not isinstance(value, dict):
            raise NoText(NO_TEXT, f"expected an object with {key!r}, found {_kind(value)}")
        if name not in value:
            present = ", ".join(map(repr, list(value)[:8])) or "none"
            raise NoText(NO_TEXT, f"no key {key!r}; keys there: {present}")
        value = value[name]
    if not isinstance(value, str):
        raise NoText(NO_TEXT, f"{key!r} is {_kind(value)}, not a string")
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError as error:
        surrogate = ord(value[error.start])
        raise NoText(INVALID_UTF8, f"half a character, U+{surrogate:04X}, in {key!r}") from None


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names = {"dict": "an object", "list": "a list", "str": "a text"}
    return names.get(type(value).__name__, "a number")
