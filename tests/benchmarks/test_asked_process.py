"""Processes that answer lines, and what is said of those that do not."""

from __future__ import annotations

import sys

import pytest

from benchmarks.asked_process import AskedProcess, ProcessFailed

ECHO = (
    "import sys\nfor line in sys.stdin: print('{\"said\": \"' + line.strip() + '\"}', flush=True)"
)


def process(tmp_path, program: str) -> AskedProcess:
    return AskedProcess([sys.executable, "-c", program], log=tmp_path / "logs" / "its.log")


def test_it_answers_and_ends_with_its_input(tmp_path):
    with process(tmp_path, ECHO) as it:
        assert it.ask("one", seconds=30) == {"said": "one"}
        assert it.ask("two", seconds=30) == {"said": "two"}
    program = (
        "import os, json; print(json.dumps({'it': os.environ['IT'], 'path': 'PATH' in os.environ}))"
    )
    with AskedProcess(
        [sys.executable, "-c", program], log=tmp_path / "log", environment={"IT": "here"}
    ) as it:
        assert it.answer(seconds=30) == {"it": "here", "path": True}


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise ValueError('too few cores')", "ValueError: too few cores"),
        ("import os; os._exit(7)", "ended with status 7 and said nothing"),
        ("print('hello')", "'hello', which is no JSON"),
        ("print('[1]')", r"'\[1\]', which is no JSON object"),
        ("print('{', end='')", "ended with status 0"),
    ],
)
def test_failures_have_reasons(tmp_path, program, message):
    with pytest.raises(ProcessFailed, match=message), process(tmp_path, program) as it:
        it.ask("anything", seconds=30)


def test_one_that_hangs_is_killed_and_one_that_is_not_there_is_named(tmp_path):
    with (
        pytest.raises(ProcessFailed, match="no answer within 0 s"),
        process(tmp_path, "import time; time.sleep(60)") as it,
    ):
        it.ask("anything", seconds=0.2)
    with pytest.raises(ProcessFailed, match="none/python: No such file"):
        AskedProcess(["none/python"], log=tmp_path / "log")
