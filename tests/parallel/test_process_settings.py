"""glibc's settings, which stay with a process; memory that is left, read from made-up trees.

The flag for GPUs, which must be set before they are in use. TPUs that are absent.
"""

import os
import sys
from pathlib import Path

import jax
import pytest
from jax._src import hardware_utils, xla_bridge

from flaxformer_mt.errors import UserError
from flaxformer_mt.parallel import process_settings as settings
from flaxformer_mt.parallel.process_settings import (
    available,
    leave_out_absent_tpu,
    make_deterministic,
    peak,
    tpu_is_there,
)


def test_nothing_is_kept_where_memory_is_scarce(monkeypatch):
    monkeypatch.setattr(settings, "_applies", lambda: True)
    monkeypatch.setattr(settings.jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(settings, "peak", lambda: 3000)
    said = []
    monkeypatch.setattr(settings, "_mallopt", lambda *setting: said.append(setting) or True)
    monkeypatch.setattr(settings, "available", lambda: 8999)
    assert not settings.keep_freed_memory()
    assert not said
    monkeypatch.setattr(settings, "available", lambda: 9000)
    assert settings.keep_freed_memory()
    assert said == [(settings._MMAP_MAX, 0), (settings._TRIM_THRESHOLD, -1)]
    monkeypatch.setattr(settings.jax, "default_backend", lambda: "gpu")
    assert not settings.keep_freed_memory()


MACHINE = 8_000_000 * 1024
V1 = ("limit_in_bytes", "usage_in_bytes")
V1_STAT = "inactive_file 1\ntotal_inactive_file 1000\n"


@pytest.mark.parametrize(
    ("groups", "left"),
    [
        ([], MACHINE),
        ([("0::/", ".", 500_000, 400_000, "")], 100_000),
        # Files that are kept in memory count as free.
        ([("0::/", ".", 500_000, 400_000, "anon 300000\ninactive_file 50000\nx 7\n")], 150_000),
        ([("0::/", ".", "max", 400_000, "")], MACHINE),
        ([("0::/", ".", 500_000, 600_000, "")], 0),
        # A group within another has the least of both.
        (
            [("0::/jobs/step", "jobs/step", "max", 90_000, ""), ("", "jobs", 200_000, 120_000, "")],
            80_000,
        ),
        # Version 1.
        (
            [
                ("3:cpu,cpuacct:/", "cpu", 1, 1, "", V1),
                ("7:memory:/job", "memory/job", 50_000, 30_000, V1_STAT, V1),
            ],
            21_000,
        ),
    ],
)
def test_a_container_has_what_its_groups_may_have(tmp_path, groups, left):
    """Each with its line in /proc/self/cgroup and its files below /sys/fs/cgroup."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal:       24000000 kB\nMemAvailable:    8000000 kB\nHugePages_Total:       0\n"
    )
    lines = [line for line, *_ in groups if line]
    (tmp_path / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in lines))
    for _, place, limit, used, stat, *names in groups:
        most, current = names[0] if names else ("max", "current")
        folder = tmp_path / "sys/fs/cgroup" / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"memory.{most}").write_text(f"{limit}\n")
        (folder / f"memory.{current}").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(stat)
    assert available(tmp_path) == left


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


def test_the_flag_joins_the_users_own_before_a_gpu_is_in_use(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/tmp/x")
    assert jax.device_count()
    make_deterministic()  # without a GPU it may come at any time
    assert os.environ["XLA_FLAGS"] == "--xla_dump_to=/tmp/x"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with pytest.raises(UserError, match="is too late"):
        make_deterministic()
    monkeypatch.setattr(xla_bridge, "backends_are_initialized", lambda: False)
    for _ in range(2):
        make_deterministic()
    assert os.environ["XLA_FLAGS"] == f"--xla_dump_to=/tmp/x {settings.FLAG}"


class Machine:
    """JAX's choice of platforms in a new process, on a machine with `chips` TPU chips."""

    def __init__(self, monkeypatch, chips: int = 0, platforms: str | None = None) -> None:
        self.tried: list[str] = []
        real_cpu = jax.devices("cpu")[0].client
        for name in ("_backends", "_backend_errors", "_backend_factories"):
            monkeypatch.setattr(xla_bridge, name, {})
        monkeypatch.setattr(xla_bridge, "_default_backend", None)
        monkeypatch.setattr(xla_bridge, "_discover_and_register_pjrt_plugins", lambda: None)
        monkeypatch.setattr(
            hardware_utils, "num_available_tpu_chips_and_device_id", lambda: (chips, None)
        )
        monkeypatch.setattr(settings, "_TPU_FILES", ())
        monkeypatch.delenv("JAX_FORCE_TPU_INIT", raising=False)
        self._platforms = platforms
        for priority, name in enumerate(("cpu", "a_gpu", "tpu")):
            xla_bridge.register_backend_factory(
                name, lambda name=name: self.tried.append(name) or real_cpu, priority=priority
            )

    def platforms(self) -> set[str]:
        before = jax.config.jax_platforms
        jax.config.update("jax_platforms", self._platforms)
        try:
            return set(xla_bridge.backends())
        finally:
            jax.config.update("jax_platforms", before)


@pytest.fixture
def machine(monkeypatch):
    return lambda **there: Machine(monkeypatch, **there)


def test_libtpu_is_left_out_where_there_is_no_tpu_and_nothing_else_is(machine):
    without_tpu = machine(chips=0)
    leave_out_absent_tpu()
    assert without_tpu.platforms() == {"cpu", "a_gpu"}
    assert "tpu" not in without_tpu.tried


def test_without_it_jax_would_try_libtpu(machine):
    assert machine(chips=0).platforms() == {"cpu", "a_gpu", "tpu"}


def test_a_tpu_that_is_there_is_used(machine):
    with_tpu = machine(chips=4)
    leave_out_absent_tpu()
    assert with_tpu.platforms() == {"cpu", "a_gpu", "tpu"}
    assert xla_bridge._default_backend is xla_bridge._backends["tpu"]


@pytest.mark.parametrize("platforms", ["tpu", "tpu,cpu", "cpu", "a_gpu,cpu"])
def test_the_users_choice_of_platforms_wins(machine, platforms):
    chosen = machine(chips=0, platforms=platforms)
    leave_out_absent_tpu()
    assert chosen.tried == []
    assert chosen.platforms() == set(platforms.split(","))


def test_jax_can_be_forced_to_try(machine, monkeypatch):
    without_tpu = machine(chips=0)
    monkeypatch.setenv("JAX_FORCE_TPU_INIT", "1")
    leave_out_absent_tpu()
    assert "tpu" in without_tpu.platforms()


def test_kernels_for_tpus_can_still_be_registered(machine):
    """As Pallas does when it is imported; and `plan` compiles for TPUs."""
    machine(chips=0)
    leave_out_absent_tpu()
    assert xla_bridge.is_known_platform("tpu")


def test_every_process_that_uses_devices_leaves_it_out():
    """Importing the room has done so here."""
    factory = xla_bridge._backend_factories["tpu"].factory
    assert factory.__qualname__.startswith("leave_out_absent_tpu.")


@pytest.mark.parametrize(
    ("file", "there"),
    [
        ("accel0", True),
        ("vfio/0", True),
        ("vfio/vfio", False),  # the driver's own, without a device
        ("accel/accel0", False),  # Intel's NPU
        ("nvidia0", False),
    ],
)
def test_device_files_of_tpus(tmp_path, monkeypatch, file, there):
    monkeypatch.setattr(hardware_utils, "num_available_tpu_chips_and_device_id", lambda: (0, None))
    path = tmp_path / "dev" / file
    path.parent.mkdir(parents=True)
    path.touch()
    assert tpu_is_there(tmp_path) == there


def test_a_jax_that_cannot_tell_may_have_a_tpu(monkeypatch):
    monkeypatch.delattr(hardware_utils, "num_available_tpu_chips_and_device_id")
    assert tpu_is_there()
