"""How much memory a process on Linux has needed, and how much it can still have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_ROOT = Path("/")


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
                yield int(most) - int(taken) + _reclaimable(group)


def _reclaimable(group: Path) -> int:
    """Bytes of files that are kept in memory while nobody needs it."""
    fields = dict(line.split(" ", 1) for line in _text(group / "memory.stat").splitlines())
    return int(fields.get("total_inactive_file", fields.get("inactive_file", "0")))


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
