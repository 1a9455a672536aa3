"""Writing aside and renaming, and changing a file in place."""

import os
import socket

import pytest

from flaxformer_mt.files import atomic
from flaxformer_mt.files.atomic import exchange, open_in_place, replacing

DEAD = 2**22 + 1  # no process has a larger number on Linux


def killed(place, monkeypatch, process=DEAD):
    """What a killed process of this number has left beside `place`."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: process)
        with pytest.raises(KeyError), replacing(place) as aside:
            raise KeyError
    aside.mkdir()
    (aside / "half").write_text("x")
    return aside


def test_what_a_killed_process_left_is_removed_and_said(tmp_path, monkeypatch, caplog):
    place = tmp_path / "model"
    orphan = killed(place, monkeypatch)
    leftover = killed(tmp_path / "other", monkeypatch)
    with replacing(place) as aside:
        aside.mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == [leftover.name, "model"]
    assert f"{orphan}: left by process {DEAD}, now gone; removing it" in caplog.text


def test_what_may_belong_to_a_living_process_stays(tmp_path, monkeypatch, caplog):
    """Numbers of processes mean nothing to another machine that writes to the same disk."""
    place = tmp_path / "model"
    alive = killed(place, monkeypatch, os.getppid())
    with monkeypatch.context() as patch:
        patch.setattr(socket, "gethostname", lambda: "elsewhere")
        atomic._process_table.cache_clear()
        foreign = killed(place, patch)
    atomic._process_table.cache_clear()
    early = tmp_path / f".model.{DEAD}.tmp"  # earlier versions' names don't tell the machine
    early.mkdir()
    caplog.clear()
    with replacing(place) as aside:
        aside.mkdir()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {alive.name, early.name, foreign.name, "model"}
    assert alive.name not in caplog.text
    for orphan in (early, foreign):
        assert f"{orphan}: left by process {DEAD}, of another machine" in caplog.text


def test_folders_are_exchanged_at_once(tmp_path):
    first, second = tmp_path / "one", tmp_path / "other"
    for folder in (first, second):
        folder.mkdir()
        (folder / folder.name).touch()
    exchange(first, second)
    assert (first / "other").exists() and (second / "one").exists()
    with pytest.raises(FileNotFoundError):
        exchange(first, tmp_path / "absent")


def test_only_a_file_of_its_own_is_changed_in_place(tmp_path):
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_text("precious")
    link.symlink_to(target)
    os.mkfifo(pipe)
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
    for path, message in (
        (link, "is a symbolic link"),
        (pipe, "not a regular file"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(OSError, match=message):
            open_in_place(path, flags)
    assert target.read_text() == "precious"
    os.close(open_in_place(tmp_path / "new", flags))
    assert (tmp_path / "new").exists()
