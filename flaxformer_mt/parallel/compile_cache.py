"""A disk cache of compiled programs, so that a second start doesn't recompile them.

A process killed while JAX's own cache writes leaves a partial entry that every later start
stumbles over. So entries are written aside and renamed here, unreadable ones are replaced, and the
least recently used removed. Needed until JAX 0.12 is the oldest version that we support.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import platform
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.monitoring

from flaxformer_mt.files.atomic import write_whole
from flaxformer_mt.parallel.chips import cpu_features

LIMIT = 8 << 30  # bytes
_THREAD = threading.local()  # `is_blind`, if it is in `compiled_afresh`
KEEP_PROGRAMS = "FLAXFORMER_KEEP_PROGRAMS"  # in the environment: see `kept_entries`


def keep_compiled(folder: Path, *, limit: int = LIMIT) -> Path | None:
    """From now on this process keeps what it compiles in `folder`, up to `limit` bytes.

    JAX_COMPILATION_CACHE_DIR names another folder, JAX_ENABLE_COMPILATION_CACHE=false none.
    Returns the folder in use or None, and never raises.
    """
    settings: Any = jax.config
    if not settings.jax_enable_compilation_cache:
        return None
    chosen = settings.jax_compilation_cache_dir
    bounded = settings.jax_compilation_cache_max_size != -1
    if chosen and (bounded or "://" in chosen):
        return Path(chosen)
    # Programs for one kind of CPU do not run on every other, and home folders are shared.
    place = Path(chosen) if chosen else folder / machine()
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not chosen:
            _trim(place, limit)
    except OSError as error:
        warnings.warn(
            f"{place}: cannot store compiled programs: {error.strerror or error}; set "
            "JAX_COMPILATION_CACHE_DIR to another folder",
            stacklevel=2,
        )
        return None
    jax.config.update("jax_compilation_cache_dir", str(place))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # JAX keeps programs that took a second. A small model's search has dozens that take less,
        # which are most of what a second start waits for.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    _take_the_place_of_jax_cache(place)
    return place


def share_compiled(folder: Path) -> None:
    """Fetches compiled programs from `folder` of a bucket, and keeps new ones there as well.

    JAX has the first of several processes write, and knows a program by the devices it is for: by
    their kind and arrangement, not by their hosts. Never raises.
    """
    place = folder_in_use()
    if place is None or "://" in str(place):
        return
    backend = jax.default_backend()
    # The hosts of the next TPU slice may have other CPUs, and what is compiled for TPUs runs there.
    shared = folder / (machine() if backend == "cpu" else backend)
    entries = Entries(place)

    def fetch(path: Path) -> None:
        key = path.name.removesuffix("-cache")
        if entries.get(key) is None:
            entries.put(key, path.read_bytes())

    with _slower_without(shared), ThreadPoolExecutor(8) as pool:
        list(pool.map(fetch, shared.iterdir() if shared.exists() else ()))
    _take_the_place_of_jax_cache(place, shared)


def folder_in_use() -> Path | None:
    """Where compiled programs are kept at present."""
    settings: Any = jax.config
    chosen = settings.jax_compilation_cache_dir
    return Path(chosen) if chosen and settings.jax_enable_compilation_cache else None


def kept_entries() -> Entries | None:
    """A store of whole programs beside JAX's entries, which `keep_compiled` trims with them; None
    unless `KEEP_PROGRAMS` is 1 in the environment: JAX calls serialised programs experimental, and
    they have failed in ways that we don't understand yet."""
    place = folder_in_use()
    if os.environ.get(KEEP_PROGRAMS) != "1" or place is None or "://" in str(place):
        return None
    return Entries(place, ending="program")


@contextlib.contextmanager
def compiled_afresh() -> Iterator[bool]:
    """Inside, JAX's cache is empty for this thread, and stays so: XLA can't write a program that
    came from there, which lacks the functions. False where the cache isn't our store."""
    from jax._src import compilation_cache

    _THREAD.is_blind = True
    try:
        yield isinstance(getattr(compilation_cache, "_cache", None), Entries)
    finally:
        _THREAD.is_blind = False


@dataclasses.dataclass
class Compilations:
    """Programs that a process has compiled so far, or read from the cache."""

    programs: int = 0
    seconds: float = 0.0  # with tracing and lowering


@functools.cache
def watch_compilations() -> Compilations:
    """This process's compilations from the first call on."""
    seen, lock = Compilations(), threading.Lock()
    counted: list[tuple[float, float]] = []  # spans of time, none of which overlap

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if not event.startswith("/jax/core/compile/"):
            return
        with lock:
            seen.programs += event.endswith("backend_compile_duration")
            end = time.monotonic()
            begin = end - duration_secs
            # Inner traces are parts of others, and threads compile at the same time.
            while counted and counted[-1][1] > begin:
                first, last = counted.pop()
                seen.seconds -= last - first
                begin = min(begin, first)
            counted.append((begin, end))
            seen.seconds += end - begin

    jax.monitoring.register_event_duration_secs_listener(listen)
    return seen


def working_time() -> float:
    """Seconds of a clock that stands still while this process compiles."""
    compiling = watch_compilations().seconds
    return time.monotonic() - compiling


@functools.cache
def machine() -> str:
    """A name for this kind of CPU, by its instruction sets."""
    features = " ".join(sorted(cpu_features()))
    digest = hashlib.sha256(features.encode()).hexdigest()
    return f"{platform.machine()}-{digest[:8]}"


@contextlib.contextmanager
def _slower_without(shared: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever a bucket's client raises
        warnings.warn(f"{shared}: cannot share compiled programs: {error!r}", stacklevel=2)


def _take_the_place_of_jax_cache(place: Path, shared: Path | None = None) -> None:
    """Gives JAX our store of entries, through private names that a test watches."""
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import compilation_cache

        compilation_cache.reset_cache()
        compilation_cache._cache = Entries(place, shared)  # type: ignore[assignment]
        compilation_cache._cache_initialized = True


class Entries:
    """A cache as JAX uses it, for any number of processes; `shared` is a bucket's copy."""

    def __init__(self, folder: Path, shared: Path | None = None, *, ending: str = "cache") -> None:
        self._path = self.path = folder
        self._shared = shared
        self._ending = ending

    def get(self, key: str) -> bytes | None:
        if _is_blind():
            return None
        path = self.file(key)
        try:
            program = path.read_bytes()
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return program

    def put(self, key: str, value: bytes) -> None:
        if _is_blind():
            return
        with contextlib.suppress(OSError):  # such as a full disk
            self.path.mkdir(parents=True, exist_ok=True)
            write_whole(self.file(key), value)
        if self._shared is not None:
            with _slower_without(self._shared):
                self._shared.mkdir(parents=True, exist_ok=True)
                (self._shared / self.file(key).name).write_bytes(value)

    def clear(self) -> None:
        """For JAX's reset; the entries stay."""

    def file(self, key: str) -> Path:
        """Where an entry is, if it is there."""
        return self.path / f"{key}-{self._ending}"


def _is_blind() -> bool:
    """Whether this thread sees no entries."""
    return bool(getattr(_THREAD, "is_blind", False))


def _trim(folder: Path, limit: int) -> None:
    entries = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process does the same
            status = path.stat()
            entries.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in entries)
    newest = max((used for used, _, _ in entries), default=0.0)
    for used, size, path in sorted(entries):
        left_behind = path.suffix == ".tmp" and newest - used > 3600
        if total > limit or left_behind:
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size
