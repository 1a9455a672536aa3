"""Whatever is wrong with a JSON file is one error that names it, and shows none of it."""

import json
import os
import re
from pathlib import Path

import pytest

from flaxformer_mt.files.reading import JsonError, load_json


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", ":1: is not JSON: Expecting value"),
        (b'{\n"a": 1,\n', ":3: is not JSON: Expecting property name enclosed in double quotes"),
        (b"[" * 100_000, ": is not JSON: "),
        (b"1" * 5000, ": is not JSON: Exceeds the limit"),
        (b'"secret \xff"', ": is not JSON: 'utf-8' codec can't decode byte 0xff in position 8"),
        (b'{"secret": "\\uD800"}', ": is not JSON: 'utf-8' codec can't encode character '\\ud800'"),
    ],
)
def test_what_is_no_json_is_told_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "some.json"
    path.write_bytes(content)
    with pytest.raises(JsonError, match=f"^{re.escape(f'{path}{message}')}[^\n]*$"):
        load_json(path)


@pytest.mark.parametrize("text", ["\U0001f600", "\\ud800", "\\"])
def test_escaped_text_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(json.dumps(text))
    assert load_json(tmp_path / "x") == text


def test_reading_a_pipe_would_never_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        load_json(tmp_path / "pipe")
