"""Whatever is wrong with a JSON file is one error that names it, and shows none of it.

What appears in a bucket is seen.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flaxformer_mt.files.reading import JsonError, load_json
from tests.conftest import environment
from tests.rundir.buckets import needs_clients


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


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a": "\ufeffb"}', encoding="utf-8-sig")
    assert load_json(tmp_path / "config.json") == {"a": "\ufeffb"}


def test_reading_a_pipe_would_never_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        load_json(tmp_path / "pipe")


LOOK = """
import sys
from flaxformer_mt.files.reading import bucket_path
for again in range(2):
    print(sorted(path.name for path in bucket_path(sys.argv[1]).iterdir()), flush=True)
    input()
"""


@needs_clients
def test_what_another_process_wrote_is_seen(gcs, bucket):
    # A process of its own: the first path made in one decides for all.
    gcs.put(f"{bucket}/some/one", b"1")
    looker = subprocess.Popen(
        [sys.executable, "-c", LOOK, f"gs://{bucket}/some"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(**gcs.environment()),
    )
    assert looker.stdout.readline() == "['one']\n"
    gcs.put(f"{bucket}/some/two", b"2")
    output, _ = looker.communicate("\n\n", timeout=60)
    assert output == "['one', 'two']\n"
