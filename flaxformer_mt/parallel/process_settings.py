"""Process-wide settings: deterministic programs, and host memory use.

XLA reads its flags when it starts: on GPUs the same bits from every run are asked for before.

Where the devices are the host's own cores, a step's intermediate values are one large piece of
memory. glibc gives such pieces back to the kernel as soon as they are freed, and the kernel clears
every page of them for the next step: up to a quarter of a small model's step (docs/performance.md).
Both functions for it leave everything as it is where an accelerator computes, with another C
library, and where the user has set glibc's own variables. What they set is the process's, until it
ends.
"""

import ctypes
import importlib.metadata
import importlib.util
import os
import pkgutil
import platform
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import jax

from flaxformer_mt.errors import UserError

_ROOT = Path("/")

# Parameters of mallopt(3), from glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8

# Pieces of several sizes leave gaps: the heap has grown to 2.4 times what it was at the first step
# (base, docs/performance.md), and other shapes of batch and validation come after that.
_ROOM = 3


def share_one_heap() -> bool:
    """Has all threads take memory from one heap, the only one that can hold large pieces.

    Must come before any use of a device: a thread that exists keeps the heap that it has. Whether
    the CPU will compute is a guess then: it will not, if an accelerator's package is installed.
    """
    return _applies() and _cpu_is_expected() and _mallopt(_ARENA_MAX, 1)


def keep_freed_memory(processes: int = 1) -> bool:
    """Has the heap keep what is freed, up to the most that was in use at one time.

    For after the first step: compiling frees much that no later step needs. Does nothing where
    memory is scarce, nor for one of several `processes`, which would count the same memory.
    """
    if not _applies() or jax.default_backend() != "cpu" or processes > 1:
        return False
    if available() < _ROOM * peak():
        return False
    return _mallopt(_MMAP_MAX, 0) and _mallopt(_TRIM_THRESHOLD, -1)


def _applies() -> bool:
    chosen = any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ)
    return platform.libc_ver()[0] == "glibc" and not chosen


def _cpu_is_expected() -> bool:
    platforms: str | None = jax.config.jax_platforms  # type: ignore[attr-defined]
    if platforms:
        return platforms.split(",")[0] == "cpu"
    plugins = importlib.util.find_spec("jax_plugins")
    folders = plugins.submodule_search_locations if plugins else None
    return not (
        any(pkgutil.iter_modules(folders or []))
        or importlib.metadata.entry_points(group="jax_plugins")
        or importlib.util.find_spec("libtpu")
        or os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS")
    )


def _mallopt(parameter: int, value: int) -> bool:
    return bool(ctypes.CDLL(None).mallopt(parameter, value))


def peak(root: Path = _ROOT) -> int:
    """Bytes that were resident at most; 0 where the system does not tell.

    Not `getrusage`'s: that begins with what the parent had when it started this process.
    """
    return _kib(root / "proc/self/status", "VmHWM")


def available(root: Path = _ROOT) -> int:
    """Bytes that this process can still have: of the machine, and of each control group that it is
    in; 0 where the system does not tell."""
    left = _kib(root / "proc/meminfo", "MemAvailable")
    return max(0, min([left, *_left_in_groups(root)]))


def _left_in_groups(root: Path) -> Iterator[int]:
    """Of its group and those above, in version 2 and in version 1 (cgroups(7))."""
    files = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, own = line.split(":", 2)
        if not controllers:
            place, limit, used = files, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            place, limit, used = files / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        # A container sees its own group as the root: what stands there may have a longer name.
        path = PurePosixPath(own.lstrip("/"))
        for group in (place / path, *(place / above for above in path.parents), place):
            most, taken = _text(group / limit), _text(group / used)
            if most.isdigit() and taken.isdigit():
                stat = _text(group / "memory.stat").splitlines()
                fields = dict(line.split(" ", 1) for line in stat)
                # Of files that are kept in memory while nobody needs it.
                cached = fields.get("total_inactive_file", fields.get("inactive_file", "0"))
                yield int(most) - int(taken) + int(cached)


def _kib(path: Path, name: str) -> int:
    for line in _text(path).splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", errors="replace").strip()
    except OSError:
        return ""


# Leaves out operations whose sums depend on the order in which threads arrive, and the choice of
# kernels by timing them (XLA's documentation of its GPU flags).
FLAG = "--xla_gpu_deterministic_ops=true"


class DeterminismError(UserError):
    """XLA has been started without the flag that was asked for too late."""


def make_deterministic() -> None:
    """Has XLA compile deterministic programs for GPUs; elsewhere they are so anyway.

    Must come before any use of a device. Raises DeterminismError if it comes later.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if FLAG in flags.split():
        return
    if _started():
        if jax.default_backend() == "gpu":
            raise DeterminismError(
                "'training.deterministic' = true is too late: this process already uses its GPUs; "
                f"start a new one, or set XLA_FLAGS={FLAG} beforehand"
            )
        return
    os.environ["XLA_FLAGS"] = f"{flags} {FLAG}".strip()


def _started() -> bool:
    # JAX tells nobody else, and asking for a device would start it.
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())
