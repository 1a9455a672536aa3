"""Files are the old ones or the new ones, and nothing is left beside them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path, PurePosixPath

import pytest

from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.paths import as_path, read_json, write_json, write_text, writing


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
def test_whatever_interrupts_it_the_old_file_alone_is_left(tmp_path, monkeypatch, step, error):
    path = tmp_path / "state.json"
    write_text(path, "old")

    def interrupted(*_):
        raise error

    monkeypatch.setattr(os, step, interrupted)
    expected = RunDirectoryError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["state.json"]
    write_json(path, {"new": 1})
    assert json.loads(path.read_text()) == {"new": 1}


def test_whatever_a_buckets_client_raises_names_the_file():
    class Remote(PurePosixPath):
        def read_bytes(self):
            raise RuntimeError("the token has expired")

    with pytest.raises(RunDirectoryError, match="run/a: cannot be read: .*the token has expired"):
        read_json(Remote("run/a"))


def test_what_a_kill_leaves_under_a_given_name_is_taken_over(tmp_path):
    path, aside = tmp_path / "state.json", tmp_path / ".state.json.tmp"
    aside.write_text("a longer text than what follows")
    write_json(path, 1, aside=aside)
    assert path.read_text() == "1\n" and os.listdir(tmp_path) == ["state.json"]


def test_a_file_appears_when_its_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("old")
    with writing(path) as file:
        file.write("new\u2028\n")
        assert path.read_text() == "old"
    assert path.read_bytes() == "new\u2028\n".encode()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_breaks_off_leaves_what_was_there(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "text"
    path.write_text("old")
    with pytest.raises(error), writing(path) as file:
        file.write("half")
        raise error
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"no/text: cannot be written: No such file"):
        with writing(tmp_path / "no" / "text"):
            pass
    with pytest.raises(RunDirectoryError, match=r"gs://bucket/text: is in a bucket"):
        with writing(as_path("gs://bucket/text")):
            pass
