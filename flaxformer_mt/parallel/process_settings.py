"""Process-wide settings: absent TPUs, deterministic programs, and host memory use.

On a CPU, a step's intermediate values are one large piece of memory. glibc returns such pieces to
the kernel when they are freed, and the kernel clears their pages for the next step: up to a quarter
of a small model's step (docs/performance.md). Both functions for it do nothing where an accelerator
computes, with another C library, and where the user has set glibc's variables.
"""

import contextlib
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

# Gaps let the heap grow to 2.4 times its first step's size (base, docs/performance.md).
_ROOM = 3

# Device files of TPUs: up to v4, and after it. Intel's NPUs are below `dev/accel/`.
_TPU_FILES = ("accel[0-9]*", "vfio/[0-9]*")


def leave_out_absent_tpu() -> None:
    """Keeps JAX from trying libtpu on a machine without a TPU, where it prints pages of errors.

    Other devices that JAX finds stay in use. If the user chooses platforms, or sets
    JAX_FORCE_TPU_INIT, JAX obeys. The machine is searched only once JAX asks for devices; called
    after that, this does nothing.
    """
    # Private names, which a test watches: JAX can only be told all platforms, or none.
    with contextlib.suppress(ImportError, AttributeError, KeyError):
        from jax._src import xla_bridge

        if xla_bridge.backends_are_initialized():
            return
        known = xla_bridge._backend_factories["tpu"]

        def tpu_if_present() -> object:
            platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
            if platforms or "JAX_FORCE_TPU_INIT" in os.environ or tpu_is_there():
                return known.factory()
            raise RuntimeError("this machine has no TPU")

        # In its place instead of without it: kernels for TPUs ask whether JAX knows the platform.
        xla_bridge.register_backend_factory(
            "tpu",
            tpu_if_present,
            priority=known.priority,
            fail_quietly=known.fail_quietly,
        )


def tpu_is_there(root: Path = _ROOT) -> bool:
    """Whether the machine seems to have a TPU: as a PCI device that JAX knows, or a device file.

    True if this JAX can't tell.
    """
    try:
        from jax._src import hardware_utils

        chips, _ = hardware_utils.num_available_tpu_chips_and_device_id()
    except (ImportError, AttributeError):
        return True
    return chips > 0 or any(any((root / "dev").glob(names)) for names in _TPU_FILES)


def share_one_heap() -> bool:
    """Has all threads take memory from one heap, the only one that can hold large pieces.

    Must come before any use of a device, since threads keep their heaps. The CPU is expected to
    compute unless an accelerator's package is installed.
    """
    return _applies() and _cpu_is_expected() and _mallopt(_ARENA_MAX, 1)


def keep_freed_memory(processes: int = 1) -> bool:
    """Has the heap keep what is freed, up to the most that was in use at one time.

    For after the first step: compiling frees much that later steps don't need. Does nothing if
    memory is scarce, or for several `processes`, which would count the same memory.
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
        or (importlib.util.find_spec("libtpu") and tpu_is_there())
        or os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS")
    )


def _mallopt(parameter: int, value: int) -> bool:
    return bool(ctypes.CDLL(None).mallopt(parameter, value))


def peak(root: Path = _ROOT) -> int:
    """Most bytes that were resident, 0 if unknown. (`getrusage` includes the parent's.)"""
    return _field(root / "proc/self/status", "VmHWM:") << 10


def available(root: Path = _ROOT) -> int:
    """Bytes that the machine and this process's control groups have left; 0 if unknown."""
    left_on_machine = _field(root / "proc/meminfo", "MemAvailable:") << 10
    return max(0, min([left_on_machine, *_left_in_groups(root)]))


def _left_in_groups(root: Path) -> Iterator[int]:
    files = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, group_name = line.split(":", 2)
        if not controllers:
            mount = files
            limit_file = "memory.max"
            usage_file = "memory.current"
            cached = "inactive_file "
        elif "memory" in controllers.split(","):
            mount = files / "memory"
            limit_file = "memory.limit_in_bytes"
            usage_file = "memory.usage_in_bytes"
            cached = "total_inactive_file "
        else:
            continue
        # A container sees its own group as the root, under a name that may be longer.
        path = PurePosixPath(group_name.lstrip("/"))
        for group in (mount / path, *(mount / above for above in path.parents), mount):
            limit = _text(group / limit_file)
            usage = _text(group / usage_file)
            if limit.isdigit() and usage.isdigit():
                # The kernel frees the memory of inactive files on demand.
                yield int(limit) - int(usage) + _field(group / "memory.stat", cached)


def _field(path: Path, name: str) -> int:
    for line in _text(path).splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", errors="replace").strip()
    except OSError:
        return ""


# Excludes sums in the order in which threads arrive, and kernels chosen by timing.
FLAG = "--xla_gpu_deterministic_ops=true"


def make_deterministic() -> None:
    """Has XLA compile deterministic programs for GPUs; on CPUs and TPUs they are anyway.

    Raises UserError after a GPU was used, since XLA reads its flags when it starts.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if FLAG in flags.split():
        return
    from jax._src import xla_bridge  # JAX tells nobody else, and asking for a device starts it

    if xla_bridge.backends_are_initialized():
        if jax.default_backend() == "gpu":
            raise UserError(
                "'training.deterministic' = true is too late: start a new process, or set "
                f"XLA_FLAGS={FLAG} beforehand"
            )
        return
    os.environ["XLA_FLAGS"] = f"{flags} {FLAG}".strip()
