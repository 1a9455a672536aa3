"""Compiled programs on disk: whole or not there, whoever was killed, and never in the way."""

import os
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import jax
import pytest

from flaxformer_mt.parallel import compile_cache
from flaxformer_mt.parallel.compile_cache import (
    Entries,
    keep_compiled,
    machine,
    share_compiled,
    watch_compilations,
    working_time,
)
from tests.conftest import environment

# Compiles one function and says how often JAX found it in the cache, and where that is.
PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")  # of JAX
from pathlib import Path
import jax
from jax import monitoring
from flaxformer_mt.parallel.compile_cache import keep_compiled
place = keep_compiled(Path(sys.argv[1]))
hits = []
monitoring.register_event_listener(
    lambda name, **_: hits.append(name) if name.endswith("/cache_hits") else None
)
def poem(x):
    return (x @ x.T).sum() * 3.25
print(float(jax.jit(poem)(jax.numpy.ones((4, 4)))), len(hits), place)
"""


def run(folder: Path, **settings: str) -> list[str]:
    """What the program says, started as a process of its own with no setting of JAX's."""
    uncached = {name: value for name, value in environment().items() if "CACHE" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)],
        capture_output=True,
        text=True,
        env={**uncached, **settings},
        timeout=120,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.extended
def test_a_second_process_compiles_nothing_and_a_damaged_entry_is_made_anew(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    # JAX's settings, where the user has any, come first.
    off = run(ours, JAX_ENABLE_COMPILATION_CACHE="false")
    assert off == ["208.0", "0", "None"] and not ours.exists()
    assert run(ours, JAX_COMPILATION_CACHE_DIR=str(theirs))[2] == str(theirs)
    assert list(theirs.glob("*-cache")) and not ours.exists()
    assert run(ours) == ["208.0", "0", str(ours / machine())]
    entries = {path: path.read_bytes() for path in ours.glob("*/*-cache")}
    assert entries
    value, hits, _ = run(ours)
    assert value == "208.0" and int(hits) == len(entries)
    for path, data in entries.items():
        path.write_bytes(data[: len(data) // 2])
    assert run(ours)[:2] == ["208.0", "0"]
    sizes = {path.stat().st_size for path in ours.glob("*/*-cache")}
    assert sizes == {len(data) for data in entries.values()}


def test_a_kill_a_full_disk_and_a_deleted_folder_stop_nothing(tmp_path, monkeypatch):
    store, value = Entries(tmp_path / "deleted"), zlib.compress(b"program" * 1000)
    store.put("key", value)
    full = OSError(28, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", mock.Mock(side_effect=full))
        store.put("other", value)
    monkeypatch.setattr(compile_cache.os, "replace", mock.Mock(side_effect=KeyboardInterrupt))
    for key in ("key", "other"):
        with pytest.raises(KeyboardInterrupt):
            store.put(key, zlib.compress(b"another"))
    assert store.get("key") == value and store.get("other") is None
    assert os.listdir(store.path) == ["key-cache"]


def test_the_folder_is_kept_to_a_size_by_use(tmp_path):
    store, seconds = Entries(tmp_path), time.time()
    for age, key in ((50, "a"), (40, "b"), (30, "c")):
        store.put(key, zlib.compress(os.urandom(1000)))
        os.utime(tmp_path / f"{key}-cache", (seconds - age, seconds - age))
    store.get("a")  # used now
    piece = tmp_path / ".d.123.tmp"
    piece.write_bytes(b"x")
    os.utime(piece, (seconds - 9000, seconds - 9000))
    compile_cache._trim(tmp_path, 2500)
    assert sorted(os.listdir(tmp_path)) == ["a-cache", "c-cache"]


def test_the_next_machine_has_what_this_one_compiled(tmp_path, monkeypatch):
    bucket, installed = tmp_path / "bucket", []
    monkeypatch.setattr(
        compile_cache, "_take_the_place_of_jax_cache", lambda *folders: installed.append(folders)
    )
    for name in ("first", "second"):
        monkeypatch.setattr(compile_cache, "folder_in_use", lambda name=name: tmp_path / name)
        share_compiled(bucket)
        store = Entries(*installed[-1])
        if name == "first":
            store.put("key", b"program")
    assert store.get("key") == b"program"
    (tmp_path / "file").write_text("")
    with pytest.warns(UserWarning, match="cannot share compiled programs: NotADirectory"):
        share_compiled(tmp_path / "file")
        Entries(*installed[-1]).put("other", b"program")


@pytest.mark.parametrize(
    "backend, found", [("tpu", b"program"), ("gpu", b"program"), ("cpu", None)]
)
def test_a_host_with_another_cpu_finds_an_accelerators_programs(
    tmp_path, monkeypatch, backend, found
):
    installed = []
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(
        compile_cache, "_take_the_place_of_jax_cache", lambda *folders: installed.append(folders)
    )
    for name in ("first", "second"):
        monkeypatch.setattr(compile_cache, "machine", lambda name=name: name)
        monkeypatch.setattr(compile_cache, "folder_in_use", lambda name=name: tmp_path / name)
        share_compiled(tmp_path / "bucket")
        if name == "first":
            Entries(*installed[-1]).put("key", b"program")
    assert Entries(*installed[-1]).get("key") == found


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    (tmp_path / "file").write_text("")
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        with pytest.warns(UserWarning, match="cannot store compiled programs"):
            assert keep_compiled(tmp_path / "file") is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_a_clock_stands_still_while_programs_compile():
    seen, began, worked = watch_compilations(), time.monotonic(), working_time()
    programs, seconds = seen.programs, seen.seconds
    # A function within a function: its trace is a part of the other's.
    jax.jit(lambda x: jax.jit(lambda x: jax.jit(jax.numpy.cos)(x) * 3.25)(x))(
        1.5
    ).block_until_ready()
    worked, elapsed = working_time() - worked, time.monotonic() - began
    assert seen.programs == programs + 1
    assert 0 < seen.seconds - seconds <= elapsed
    assert worked == pytest.approx(elapsed - (seen.seconds - seconds), abs=0.05)
    began, seconds = time.monotonic(), seen.seconds
    with ThreadPoolExecutor(4) as pool:  # what they compile at the same time counts once
        list(pool.map(lambda x: jax.jit(lambda y: jax.numpy.cos(y) * x)(x), range(2, 10)))
    assert 0 < seen.seconds - seconds <= time.monotonic() - began


def test_whole_programs_are_kept_on_request_only(monkeypatch, tmp_path):
    monkeypatch.setattr(compile_cache, "folder_in_use", lambda: tmp_path)
    for chosen, are_kept in (("", False), ("0", False), ("1", True)):
        monkeypatch.setenv(compile_cache.KEEP_PROGRAMS, chosen)
        assert (compile_cache.kept_entries() is not None) == are_kept
    monkeypatch.delenv(compile_cache.KEEP_PROGRAMS)
    assert compile_cache.kept_entries() is None
