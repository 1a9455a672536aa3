"""Files are the old ones or the new ones, and nothing is left beside them."""

from __future__ import annotations

import errno
import json
import os

import pytest

from flaxformer_mt.rundir.atomic import write_json, write_text
from flaxformer_mt.rundir.errors import RunDirectoryError


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


def test_what_a_kill_leaves_under_a_given_name_is_taken_over(tmp_path):
    path, aside = tmp_path / "state.json", tmp_path / ".state.json.tmp"
    aside.write_text("a longer text than what follows")
    write_json(path, 1, aside=aside)
    assert path.read_text() == "1\n" and os.listdir(tmp_path) == ["state.json"]
