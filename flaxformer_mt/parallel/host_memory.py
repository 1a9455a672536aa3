"""Memory of the host, where the devices are its own cores.

A step's intermediate values are one large piece of memory. glibc gives such pieces back to the
kernel as soon as they are freed, and the kernel clears every page of them for the next step: of a
small model's step a seventh to a quarter (docs/performance.md). Both functions leave everything as
it is where an accelerator computes, with another C library, and where the user has set glibc's own
variables.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import pkgutil
import resource
from pathlib import Path

import jax

# Parameters of mallopt(3), from glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def share_one_heap() -> bool:
    """Has all threads take memory from one heap, the only one that can hold large pieces.

    Must come before any use of a device: a thread that exists keeps the heap that it has.
    """
    return _applies() and _mallopt(_ARENA_MAX, 1)


def keep_freed_memory() -> bool:
    """Has the heap keep what is freed, up to the most that was in use at one time.

    For after the first step: compiling frees much that no later step needs. Does nothing where less
    memory is left than twice what this process has needed at its peak: pieces of several sizes
    leave gaps, and the heap has grown to 2.4 times that peak (base, docs/performance.md).
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    if not _applies() or available() < 2 * peak:
        return False
    return _mallopt(_MMAP_MAX, 0) and _mallopt(_TRIM_THRESHOLD, -1)


def available(root: Path = Path("/")) -> int:
    """Bytes that this process can still have: of the machine, and of its control group."""
    lines = (root / "proc/meminfo").read_text("ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    left = int(fields["MemAvailable"].split()[0]) << 10
    group = root / "sys/fs/cgroup"
    limit, used = (_text(group / f"memory.{name}") for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        left = min(left, int(limit) - int(used))
    return left


def _applies() -> bool:
    own = ("GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_")
    return _is_glibc() and _on_cpu() and not any(name in os.environ for name in own)


def _is_glibc() -> bool:
    name = "CS_GNU_LIBC_VERSION"
    return name in os.confstr_names and bool(os.confstr(name))


def _on_cpu() -> bool:
    """Whether JAX will compute on the CPU, found out without starting it.

    Where nothing was chosen it takes the first accelerator that a package is installed for.
    """
    chosen: str | None = jax.config.jax_platforms  # type: ignore[attr-defined]
    if chosen:
        return chosen == "cpu"
    plugins = importlib.util.find_spec("jax_plugins")
    folders = plugins.submodule_search_locations if plugins else None
    return not (
        any(pkgutil.iter_modules(folders or []))
        or importlib.metadata.entry_points(group="jax_plugins")
        or importlib.util.find_spec("libtpu")
    )


def _mallopt(parameter: int, value: int) -> bool:
    return bool(ctypes.CDLL(None).mallopt(parameter, value))


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except OSError:
        return ""
