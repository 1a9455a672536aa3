"""Storage for runs: a checkpoint saved and restored, free space, the cache of compiled programs."""

import functools
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from flaxformer_mt.diagnosis.machine import Finding, State, noted, spread
from flaxformer_mt.parallel import Processes
from flaxformer_mt.rundir.checkpoint_choice import KeepPolicy
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.paths import is_remote

_BYTES = 1 << 26  # a quarter of the base model's parameters
_GB = 1e9
_ENOUGH = 20 * _GB  # some checkpoints of the base model with its moments
_TOO_LITTLE = 1 * _GB


def check_checkpoint(place: Path, processes: Processes) -> Iterator[Finding]:
    """Saves, reads and removes an array over all devices below `place`."""
    name = processes.first(lambda: f"doctor-{uuid.uuid4().hex[:8]}")
    folder = place / name
    try:
        if missing := _without(folder, processes):
            text = f"{place} is not the same folder for process {', '.join(map(str, missing))}"
            advice = "--workdir must be on a shared file system or in a bucket"
            yield Finding("checkpoint", "FAIL", text, advice)
        else:
            yield _there_and_back(folder, place)
    finally:
        processes.first(lambda: _remove(folder))


def check_space(place: Path, cache: Path | None) -> Iterator[Finding]:
    """Free space for runs and compiled programs, except in buckets."""
    folders = [] if is_remote(place) else [place]
    folders += [cache] if cache is not None and "://" not in str(cache) else []
    for folder in dict.fromkeys(folders):
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        advice = "a checkpoint takes 0.7 GB (base) or 2.5 GB (big), and several are kept"
        state: State = "FAIL" if free < _TOO_LITTLE else "warn" if free < _ENOUGH else "ok"
        text = f"{free / _GB:,.0f} GB free in {folder}"
        yield Finding("space", state, text, "" if state == "ok" else advice, {"free": float(free)})


def check_cache(folder: Path | None) -> Iterator[Finding]:
    """Whether compiled programs can be kept."""
    if folder is None:
        advice = "unset JAX_ENABLE_COMPILATION_CACHE, or choose a writable folder with "
        advice += "FLAXFORMER_CACHE"
        yield noted("cache", "compiled programs are not stored: each start recompiles", advice)
    elif "://" in str(folder):
        yield noted("cache", f"compiled programs are stored in {folder} (not tested)")
    else:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            yield noted("cache", f"compiled programs are stored in {folder}")
        except OSError as error:
            text = f"{folder} cannot be written: {error.strerror or error}"
            yield noted("cache", text, "set FLAXFORMER_CACHE to another folder")


def _without(folder: Path, processes: Processes) -> list[int]:
    """The processes that don't see the first one's folder."""
    if processes.count == 1 or is_remote(folder):
        return []
    processes.first(functools.partial(folder.mkdir, parents=True))
    told = processes.gather(["yes" if folder.exists() else "no"])
    return processes.first(lambda: [n for n, (answer,) in enumerate(told) if answer == "no"])


def _there_and_back(folder: Path, place: Path) -> Finding:
    width = _BYTES // 4 // 64 // jax.device_count()
    table = spread(64, width, lambda n: np.random.default_rng(n).random((64, width), np.float32))
    abstract = {"table": jax.ShapeDtypeStruct(table.shape, table.dtype, sharding=table.sharding)}
    start = time.perf_counter()
    with Checkpoints(folder, KeepPolicy()) as checkpoints:
        checkpoints.save(Snapshot(step=1, params={"table": table}, opt_state={}, position={"n": 1}))
        checkpoints.wait()
        saved = time.perf_counter() - start
        found = checkpoints.restore(abstract, {}).params["table"]
    restored = time.perf_counter() - start - saved
    text = f"{_BYTES / 1e6:.0f} MB to {place} in {saved:.1f} s and back in {restored:.1f} s"
    values = {"bytes": float(_BYTES), "save_seconds": saved, "restore_seconds": restored}
    shards = zip(found.addressable_shards, table.addressable_shards, strict=True)
    if not all(np.array_equal(a.data, b.data) for a, b in shards):
        return Finding("checkpoint", "FAIL", f"{text}; it came back changed", "try another disk")
    return noted("checkpoint", f"{text}, digests as saved", values=values)


def _remove(folder: Path) -> None:
    if is_remote(folder):
        folder.rmtree(missing_ok=True)  # type: ignore[attr-defined]
    else:
        shutil.rmtree(folder, ignore_errors=True)
