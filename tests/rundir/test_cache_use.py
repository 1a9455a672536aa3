"""Folders of the cache go when nothing has used them for long, and stay while anything does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flaxformer_mt.rundir import cache_use

LONG = (cache_use.UNUSED_DAYS + 1) * 86_400


@pytest.fixture
def copy(tmp_path) -> Path:
    """A copy in a cache, used just now by nobody who lives."""
    folder = tmp_path / "folders" / "key"
    (folder / "deeper").mkdir(parents=True)
    (folder / "deeper" / "tokens").write_bytes(b"tokens")
    return folder


def age(folder: Path) -> None:
    os.utime(folder, (time.time() - LONG,) * 2)


def test_what_was_not_used_for_long_is_removed_and_told(copy, caplog):
    (copy.parent / "new").mkdir()
    aside = copy.parent / ".other.12"
    begun = copy.parent.parent / "preparing" / "run"
    for folder in (aside, begun):
        folder.mkdir(parents=True)
        age(folder)
    cache_use.remove_unused(copy.parent.parent)
    assert copy.exists()
    age(copy)
    cache_use.remove_unused(copy.parent.parent)
    assert os.listdir(copy.parent) == ["new"] and not begun.exists()
    assert "removed 1 folders that nothing has used for 30 days" in caplog.text


def test_use_counts_and_a_removed_folder_cannot_be_used(copy):
    age(copy)
    assert cache_use.use(copy)
    cache_use._release(copy)
    cache_use.remove_unused(copy.parent.parent)
    assert copy.exists()
    cache_use.remove(copy)
    assert not cache_use.use(copy) and os.listdir(copy.parent) == []


USE = """
import sys, time
from pathlib import Path
from flaxformer_mt.rundir import cache_use
assert cache_use.use(Path(sys.argv[1]))
print("used", flush=True)
time.sleep(60)
"""


def test_what_a_living_process_uses_stays_however_old(copy):
    user = subprocess.Popen(
        [sys.executable, "-c", USE, str(copy)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert user.stdout is not None
    with user, user.stdout:
        assert user.stdout.readline() == "used\n"
        age(copy)
        cache_use.remove_unused(copy.parent.parent)
        assert (copy / "deeper" / "tokens").exists()
        user.kill()
        user.wait()
    cache_use.remove_unused(copy.parent.parent)
    assert not copy.exists()
