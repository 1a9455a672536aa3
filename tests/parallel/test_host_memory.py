"""glibc's settings, which stay with a process; memory that is left, read from made-up trees."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flaxformer_mt.parallel import host_memory
from flaxformer_mt.parallel.host_memory import available, peak

on_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="this C library is not glibc"
)


@on_glibc
@pytest.mark.extended
def test_left_alone_among_processes_and_where_the_user_chose():
    code = """if True:
        import os
        from flaxformer_mt.parallel.host_memory import keep_freed_memory, share_one_heap
        for name, value in (
            ("MALLOC_ARENA_MAX", "4"),
            ("MALLOC_TOP_PAD_", "1"),
            ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072"),
        ):
            os.environ[name] = value
            assert not share_one_heap() and not keep_freed_memory(), name
            del os.environ[name]
        assert share_one_heap() and not keep_freed_memory(2) and keep_freed_memory(1)
    """
    mine = ("MALLOC_", "GLIBC_TUNABLES")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    subprocess.run([sys.executable, "-c", code], env=clean, check=True, timeout=100)


@pytest.mark.parametrize(
    ("chosen", "cpu"), [("cpu,tpu", True), ("tpu,cpu", False), ("cuda", False)]
)
def test_what_is_chosen_first_is_expected(monkeypatch, chosen, cpu):
    config = SimpleNamespace(config=SimpleNamespace(jax_platforms=chosen))
    monkeypatch.setattr(host_memory, "jax", config)
    assert host_memory._cpu_is_expected() == cpu


def test_only_without_an_accelerators_package_the_cpu_computes(tmp_path, monkeypatch):
    chosen = SimpleNamespace(config=SimpleNamespace(jax_platforms=None))
    monkeypatch.setattr(host_memory, "jax", chosen)
    monkeypatch.setattr(host_memory.importlib.metadata, "entry_points", lambda group: ())
    packages: dict[str, object] = {}
    monkeypatch.setattr(host_memory.importlib.util, "find_spec", packages.get)
    monkeypatch.delenv("PJRT_NAMES_AND_LIBRARY_PATHS", raising=False)
    assert host_memory._cpu_is_expected()
    plugins = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    packages["jax_plugins"] = plugins
    assert host_memory._cpu_is_expected()
    (tmp_path / "xla_cuda13").mkdir()
    (tmp_path / "xla_cuda13" / "__init__.py").touch()
    assert not host_memory._cpu_is_expected()
    packages.clear()
    packages["libtpu"] = object()
    assert not host_memory._cpu_is_expected()
    packages.clear()
    monkeypatch.setenv("PJRT_NAMES_AND_LIBRARY_PATHS", "chip:/lib/chip.so")
    assert not host_memory._cpu_is_expected()


def test_nothing_is_kept_where_memory_is_scarce(monkeypatch):
    monkeypatch.setattr(host_memory, "_applies", lambda: True)
    monkeypatch.setattr(host_memory.jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(host_memory, "peak", lambda: 3000)
    said = []
    monkeypatch.setattr(host_memory, "_mallopt", lambda *setting: said.append(setting) or True)
    monkeypatch.setattr(host_memory, "available", lambda: 8999)
    assert not host_memory.keep_freed_memory()
    assert not said
    monkeypatch.setattr(host_memory, "available", lambda: 9000)
    assert host_memory.keep_freed_memory()
    assert said == [(host_memory._MMAP_MAX, 0), (host_memory._TRIM_THRESHOLD, -1)]
    monkeypatch.setattr(host_memory.jax, "default_backend", lambda: "gpu")
    assert not host_memory.keep_freed_memory()


MACHINE = 8_000_000 * 1024


@pytest.fixture
def root(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal:       24000000 kB\nMemAvailable:    8000000 kB\nHugePages_Total:       0\n"
    )
    return tmp_path


def group(root, line, place, limit, used, *, names=("max", "current"), stat=""):
    """A control group: its line in /proc/self/cgroup and its files below /sys/fs/cgroup."""
    with (root / "proc/self/cgroup").open("a") as groups:
        groups.write(f"{line}\n")
    folder = root / "sys/fs/cgroup" / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"memory.{names[0]}").write_text(f"{limit}\n")
    (folder / f"memory.{names[1]}").write_text(f"{used}\n")
    if stat:
        (folder / "memory.stat").write_text(stat)


@pytest.mark.parametrize(
    ("limit", "used", "stat", "left"),
    [
        (500_000, 400_000, "", 100_000),
        # Files that are kept in memory count as free.
        (500_000, 400_000, "anon 300000\ninactive_file 50000\nactive_file 7\n", 150_000),
        ("max", 400_000, "", MACHINE),
        (500_000, 600_000, "", 0),
    ],
)
def test_a_container_has_what_its_group_may_have(root, limit, used, stat, left):
    assert available(root) == MACHINE
    group(root, "0::/", ".", limit, used, stat=stat)
    assert available(root) == left


def test_a_group_within_another_has_the_least_of_both(root):
    group(root, "0::/jobs/step", "jobs/step", "max", 90_000)
    group(root, "", "jobs", 200_000, 120_000)
    (root / "proc/self/cgroup").write_text("0::/jobs/step\n")
    assert available(root) == 80_000


def test_version_one(root):
    names = ("limit_in_bytes", "usage_in_bytes")
    group(root, "3:cpu,cpuacct:/", "cpu", 1, 1, names=names)
    stat = "inactive_file 1\ntotal_inactive_file 1000\n"
    group(root, "7:memory:/job", "memory/job", 50_000, 30_000, names=names, stat=stat)
    assert available(root) == 21_000


@pytest.mark.parametrize("text", [None, "", "MemTotal: 24000000 kB\n", "no colon\n"])
def test_a_system_that_does_not_tell_has_nothing(tmp_path, text):
    if text is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/meminfo").write_text(text)
    assert available(tmp_path) == 0
    assert peak(tmp_path) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_peak_of_this_very_process():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    assert 0.9 * pages * os.sysconf("SC_PAGE_SIZE") < peak()
    assert available() > 0
