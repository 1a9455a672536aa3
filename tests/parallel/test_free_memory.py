"""Memory that is left, read from made-up trees of what the kernel shows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from flaxformer_mt.parallel.free_memory import available, peak

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
