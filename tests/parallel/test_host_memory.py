"""Settings of glibc's memory, which stay with a process: each case has one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from flaxformer_mt.parallel import host_memory

_GLIBC = "CS_GNU_LIBC_VERSION"
on_glibc = pytest.mark.skipif(
    not (_GLIBC in os.confstr_names and os.confstr(_GLIBC)), reason="this C library is not glibc"
)

# Steps whose intermediate values are large enough for glibc to map them one by one.
STEPS = """
import resource, sys
import jax, jax.numpy as jnp
from flaxformer_mt.parallel.host_memory import keep_freed_memory, share_one_heap

wanted = sys.argv[1] == "kept"
if wanted:
    assert share_one_heap()

@jax.jit
def step(x):
    # Two products with the sum between: neither can be computed into the other's place.
    wide = jnp.einsum("ij,jk->ik", x, jnp.ones((256, 65536)))
    return jnp.einsum("ik,jk->ij", jax.nn.relu(wide), jnp.ones((256, 65536))) / 1e9

x = jax.block_until_ready(step(jnp.ones((256, 256))))
if wanted:
    assert keep_freed_memory()
for _ in range(8):
    x = jax.block_until_ready(step(x))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    x = jax.block_until_ready(step(x))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(code: str, *arguments: str, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    clean.pop("GLIBC_TUNABLES", None)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**clean, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@on_glibc
def test_steps_take_no_new_pages_from_the_kernel():
    faults = {kind: int(run(STEPS, kind)) for kind in ("kept", "given_back")}
    # 64 MiB a step are 16,384 pages of 4 KiB, fewer where the kernel hands out huge ones.
    assert faults["given_back"] > 10 * max(faults["kept"], 5), faults


@pytest.mark.parametrize(
    ("environment", "applies"),
    [
        ({}, True),
        ({"JAX_PLATFORMS": "tpu,cpu"}, False),
        ({"JAX_PLATFORMS": "cuda"}, False),
        # Whoever sets these has chosen.
        ({"MALLOC_ARENA_MAX": "4"}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}, False),
    ],
)
@on_glibc
def test_left_alone_on_accelerators_and_where_the_user_chose(environment, applies):
    code = (
        "from flaxformer_mt.parallel.host_memory import keep_freed_memory, share_one_heap\n"
        "print(share_one_heap(), keep_freed_memory())"
    )
    assert run(code, **environment) == f"{applies} {applies}"


def test_an_installed_accelerator_is_what_jax_takes(monkeypatch):
    nothing_chosen = SimpleNamespace(config=SimpleNamespace(jax_platforms=None))
    monkeypatch.setattr(host_memory, "jax", nothing_chosen)
    monkeypatch.setattr(host_memory.importlib.metadata, "entry_points", lambda group: ())
    monkeypatch.setattr(host_memory.importlib.util, "find_spec", lambda name: None)
    assert host_memory._on_cpu()
    found = {"libtpu": object()}
    monkeypatch.setattr(host_memory.importlib.util, "find_spec", found.get)
    assert not host_memory._on_cpu()


def write(root, available, limit=None, used=None):
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(
        f"MemTotal:       24000000 kB\nMemAvailable:   {available} kB\nHugePages_Total:       0\n"
    )
    if limit is not None:
        (root / "sys/fs/cgroup").mkdir(parents=True)
        (root / "sys/fs/cgroup/memory.max").write_text(f"{limit}\n")
        (root / "sys/fs/cgroup/memory.current").write_text(f"{used}\n")
    return root


def test_what_is_left_of_the_machine(tmp_path):
    assert host_memory.available(write(tmp_path, available=1000)) == 1000 * 1024


def test_a_container_has_what_its_group_may_have(tmp_path):
    root = write(tmp_path, available=1000, limit=500_000, used=400_000)
    assert host_memory.available(root) == 100_000


def test_a_group_without_a_limit(tmp_path):
    root = write(tmp_path, available=1000, limit="max", used=400_000)
    assert host_memory.available(root) == 1000 * 1024


def test_nothing_is_kept_where_memory_is_scarce(monkeypatch):
    monkeypatch.setattr(host_memory, "_applies", lambda: True)
    usage = SimpleNamespace(ru_maxrss=3_000_000)
    monkeypatch.setattr(host_memory.resource, "getrusage", lambda who: usage)
    said = []
    monkeypatch.setattr(host_memory, "_mallopt", lambda *setting: said.append(setting) or True)
    monkeypatch.setattr(host_memory, "available", lambda: 5_999_999 * 1024)
    assert not host_memory.keep_freed_memory()
    assert not said
    monkeypatch.setattr(host_memory, "available", lambda: 6_000_000 * 1024)
    assert host_memory.keep_freed_memory()
    assert said == [(host_memory._MMAP_MAX, 0), (host_memory._TRIM_THRESHOLD, -1)]
