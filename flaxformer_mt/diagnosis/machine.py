"""What the machine has: versions, devices, their speed and communication, storage for runs."""

import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import platform
import re
import resource
import shutil
import tempfile
import time
import timeit
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.errors import install
from flaxformer_mt.parallel.chips import chip_of, product_flops, upload_bandwidth
from flaxformer_mt.parallel.process_settings import tpu_is_there
from flaxformer_mt.parallel.processes import Processes, over_devices
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.paths import is_remote, reason, remove
from flaxformer_mt.versions import git_commit, package_versions

_GIB = 1 << 30
_MIB = 1 << 20
_PACKAGES = (
    *("flaxformer-mt", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint"),
    *("libtpu", "jax-cuda13-plugin", "jax-cuda12-plugin"),
    *("nvidia-cudnn-cu13", "nvidia-cudnn-cu12"),
)
_PLUGINS = ("jaxlib", "jax-cuda13-plugin", "jax-cuda12-plugin")  # versions must match jax
_DRIVER = Path("/proc/driver/nvidia/version")
_SIGNS = {"gpu": ("/dev/nvidia0", str(_DRIVER)), "tpu": ("/dev/accel0", "/dev/vfio/0")}
_EXTRA = {"gpu": "cuda", "tpu": "tpu"}
_EXPECTED = 0.5  # of the peak, for one large product; healthy devices reach 0.7
_SLOW_UPLOAD = 1e9  # bytes/s; a batch has some hundred kilobytes
_SUMMED = 1 << 26  # bytes of float32 per device: about a quarter of a base model's gradient
_TRIES = 3
_BUCKET_ADVICE = (
    "the bucket must exist (`gcloud storage ls gs://BUCKET`), and this machine's service account "
    "needs the role roles/storage.objectUser on it"
)
_SAVED = 1 << 26  # a quarter of the base model's parameters
_GB = 1e9
_ENOUGH = 20 * _GB  # some checkpoints of the base model with its moments
_TOO_LITTLE = 1 * _GB

State = Literal["ok", "warn", "FAIL"]
Value = float | str | None


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report, with `advice`; FAIL if training would fail."""

    name: str
    state: State
    text: str
    advice: str = ""
    values: Mapping[str, Value] = dataclasses.field(default_factory=dict)

    def line(self) -> str:
        advice = f" → {self.advice}" if self.advice else ""
        return f"{self.state:<5}{self.name:<15}{self.text}{advice}"


Check = Callable[[], Iterator[Finding]]


def examined(name: str, check: Check) -> Iterator[Finding]:
    """The findings of a check; an exception is a finding, too."""
    try:
        yield from check()
    except Exception as error:
        kind = type(error).__name__
        reason = " ".join((str(error) or kind).split())[:500]
        advice = "see the message; if it doesn't help, run this part by hand"
        yield Finding(name, "FAIL", f"{kind}: {reason}", advice)


def noted(
    name: str, text: str, advice: str = "", values: Mapping[str, Value] | None = None
) -> Finding:
    """A warning if there is advice, otherwise ok."""
    return Finding(name, "warn" if advice else "ok", text, advice, values or {})


def has_failed(findings: Sequence[Finding]) -> bool:
    return any(finding.state == "FAIL" for finding in findings)


def spread(rows: int, columns: int, part: Callable[[int], np.ndarray]) -> jax.Array:
    """An array with `rows` rows per device; `part` maps a device's first row to its block."""
    shape = (rows * jax.device_count(), columns)

    def block(index: Any) -> np.ndarray:
        return part(index[0].start or 0)

    return jax.make_array_from_callback(shape, over_devices("device"), block)


def versions() -> dict[str, str]:
    """Versions of Python, installed libraries, the GPU driver and this code."""
    found = {"python": platform.python_version(), **package_versions(_PACKAGES)}
    if _DRIVER.exists() and (match := re.search(r"Module\D+([\d.]+)", _DRIVER.read_text())):
        found["nvidia driver"] = match[1]
    if commit := git_commit():
        found["commit"] = commit[:12]
    return found


def check_versions() -> Iterator[Finding]:
    """Whether the versions that must be equal are."""
    found = versions()
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    other = [name for name in _PLUGINS if name in found and found[name] != found["jax"]]
    wrong = ", ".join(f"{name} {found[name]} with jax {found['jax']}" for name in other)
    advice = f"{wrong}: install the same version of both" if wrong else ""
    yield noted("versions", text, advice, dict(found))
    # CUDA's and cuDNN's versions, or libtpu's build.
    running = " ".join(jax.devices()[0].client.platform_version.split())
    yield noted("runtime", running, values={"platform_version": running})


def check_locked_memory() -> Iterator[Finding]:
    """Whether libtpu may lock the memory that it exchanges with the chips."""
    if not tpu_is_there():
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY:
        yield noted("locked memory", "unlimited")
        return
    # https://cloud.google.com/kubernetes-engine/docs/how-to/tpus#privileged-mode
    advice = "in a container libtpu may need more: start with `prlimit --memlock=unlimited`"
    text = f"at most {limit / _MIB:,.0f} MiB"
    yield noted("locked memory", text, advice, {"limit": float(limit)})


def check_devices(processes: Processes) -> Iterator[Finding]:
    """JAX's devices, and whether they are the machine's."""
    devices, here = jax.devices(), jax.local_devices()
    kinds = Counter(device.device_kind for device in devices)
    text = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
    if processes.count > 1:
        text += f"; {len(here)} of this process, {processes.number} of {processes.count}"
    platform = here[0].platform
    if platform == "cpu" and _libtpu_is_left_out():
        text += "; no TPU found, so libtpu isn't loaded (JAX_FORCE_TPU_INIT=1 tries it)"
    values = {"platform": platform, "count": len(devices), "kind": here[0].device_kind}
    if advice := _overlooked(platform):
        state: State = "warn" if os.environ.get("JAX_PLATFORMS") else "FAIL"
        yield Finding("devices", state, text, advice, values)
    else:
        advice = "a mesh is as fast as its slowest device" if len(kinds) > 1 else ""
        yield noted("devices", text, advice, values)
    yield from _memory(here)
    if platform != "cpu" and chip_of(here[0].device_kind) is None:
        advice = "set training.chip_tflops=TFLOPS to report MFU"
        yield noted("chip", f"unknown peak of {here[0].device_kind!r}", advice)


def _libtpu_is_left_out() -> bool:
    asked = os.environ.get("JAX_PLATFORMS") or os.environ.get("JAX_FORCE_TPU_INIT")
    return not asked and importlib.util.find_spec("libtpu") is not None and not tpu_is_there()


def _overlooked(platform: str) -> str:
    there = (kind for kind in _SIGNS if any(Path(sign).exists() for sign in _SIGNS[kind]))
    if platform != "cpu" or (kind := next(there, None)) is None:
        return ""
    if asked := os.environ.get("JAX_PLATFORMS"):
        return f"there is a {kind.upper()}, but JAX_PLATFORMS={asked} excludes it"
    extra = _EXTRA[kind]
    return (
        f"there is a {kind.upper()} that JAX does not see: {install(extra)}, and check that no "
        "other process holds it"
    )


def _memory(devices: list[jax.Device]) -> Iterator[Finding]:
    stats = [found for device in devices if (found := device.memory_stats())]
    counted = [(found.get("bytes_in_use", 0), found.get("bytes_limit", 0)) for found in stats]
    if not counted or not counted[0][1]:
        return
    used, limit = max(counted)
    text = f"{limit / _GIB:.1f} GiB per device, {used / _GIB:.2f} GiB in use"
    advice = "another program uses the device: end it" if used > limit / 2 else ""
    yield noted("memory", text, advice, {"limit": limit, "used": used})


def check_speed(device: jax.Device) -> Iterator[Finding]:
    """How fast a device multiplies, and how fast data gets to it."""
    if device.platform == "cpu":
        flops = product_flops(device, dtype="float32", size=1024, seconds=0.5)
        yield noted("product", f"float32 {flops / 1e9:,.0f} GFLOP/s", values={"flops": flops})
        return  # nothing is far from its memory
    chip = chip_of(device.device_kind)
    dtype = "bfloat16" if chip is None else chip.half
    flops = product_flops(device, dtype=dtype, size=8192, seconds=1.0, times=8)
    text, advice = f"{dtype} {flops / 1e12:,.0f} TFLOP/s", ""
    values: dict[str, Value] = {"flops": flops}
    if chip is not None:
        share = flops / chip.bf16_flops
        text += f", {100 * share:.0f}% of the peak of {chip.name}"
        values["peak"] = chip.bf16_flops
        if share < _EXPECTED:
            advice = "another program uses the device, or it is throttled (power, temperature)"
    yield noted("product", text, advice, values)
    rate = upload_bandwidth(device)
    text = f"{rate / 1e9:.1f} GB/s from the host"
    advice = "batches may arrive late: watch `data wait`" if rate < _SLOW_UPLOAD else ""
    yield noted("upload", text, advice, {"bytes_per_second": rate})


def check_collective() -> Iterator[Finding]:
    """A sum over all devices, of numbers that name them."""
    count = jax.device_count()
    if count == 1:
        yield noted("collective", "one device: nothing to exchange")
        return
    length = _SUMMED // 4 // (8 if jax.devices()[0].platform == "cpu" else 1)
    rows = spread(1, length, lambda number: np.full((1, length), number, np.float32))
    total = jax.jit(lambda array: jnp.sum(array, axis=0), out_shardings=over_devices())
    found = np.asarray(total(rows).addressable_data(0))
    again = timeit.repeat(lambda: total(rows).block_until_ready(), number=1, repeat=_TRIES)
    rate = 4 * length / min(again)
    text = f"a sum over {count} devices: {4 * length / 1e6:.0f} MB each at {rate / 1e9:.2f} GB/s"
    values = {"devices": count, "bytes_per_second": rate}
    if (found == count * (count - 1) / 2).all():
        yield noted("collective", text, values=values)
        return
    advice = "devices cannot communicate properly: check the network between them"
    yield Finding("collective", "FAIL", f"{text}; the sum is wrong", advice, values)


def check_processes(processes: Processes) -> Iterator[Finding]:
    """Whether all processes run the same code on the same kind of device."""
    if processes.count == 1:
        return
    mine = json.dumps([versions(), jax.local_devices()[0].device_kind, jax.local_device_count()])
    told = processes.gather([mine])
    others = ", ".join(str(number) for number, text in enumerate(told) if text != told[0])
    if others:
        text = f"{processes.count} processes; {others} differ from the first"
        advice = "versions, devices and commit must be the same everywhere"
        yield Finding("processes", "FAIL", text, advice)
    else:
        text = f"{processes.count} processes with the same versions and devices"
        yield noted("processes", text)


def check_bucket(place: Path) -> Iterator[Finding]:
    """Whether this machine may write, list, read and delete in a bucket."""
    if not is_remote(place):
        return
    probe = place / f"doctor-{uuid.uuid4().hex[:8]}" / "probe.txt"
    actions: dict[str, Callable[[], Any]] = {
        "write to": lambda: probe.write_bytes(b"a probe"),
        "list": lambda: [*probe.parent.iterdir()],
        "read from": probe.read_bytes,
        "delete from": probe.unlink,
    }
    for verb, action in actions.items():
        try:
            action()
        except Exception as error:  # whatever the bucket's clients raise
            with contextlib.suppress(Exception):
                probe.unlink()
            text = f"can't {verb} {place}: {reason(error)}"
            yield Finding("bucket", "FAIL", text, _BUCKET_ADVICE)
            return
    yield noted("bucket", f"{place}: objects can be written, listed, read and deleted")


def check_checkpoint(place: Path, processes: Processes) -> Iterator[Finding]:
    """Saves, reads and removes an array over all devices below `place`."""
    name = processes.first(lambda: f"doctor-{uuid.uuid4().hex[:8]}")
    folder = place / name
    try:
        missing: list[int] = []
        if processes.count > 1 and not is_remote(folder):
            processes.first(functools.partial(folder.mkdir, parents=True))
            told = processes.gather(["yes" if folder.exists() else "no"])
            missing = processes.first(
                lambda: [n for n, (answer,) in enumerate(told) if answer == "no"]
            )
        if missing:
            text = f"{place} is not the same folder for process {', '.join(map(str, missing))}"
            advice = "--workdir must be on a shared file system or in a bucket"
            yield Finding("checkpoint", "FAIL", text, advice)
        else:
            yield _there_and_back(folder, place)
    finally:
        processes.first(lambda: remove(folder))


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundTrip:
    """Arrays that were saved and read again: bytes, seconds, and whether every bit came back."""

    size: int
    saving: float
    restoring: float
    is_same: bool

    @property
    def values(self) -> dict[str, Value]:
        return {
            "bytes": float(self.size),
            "save_seconds": self.saving,
            "restore_seconds": self.restoring,
        }


def round_trip(folder: Path, params: Any, opt_state: Any) -> RoundTrip:
    """Saves the arrays of all processes as a checkpoint, and compares this process's when they are
    read again. Raises CheckpointError."""
    arrays = params, opt_state
    abstract = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding),
        arrays,
    )
    start = time.perf_counter()
    with Checkpoints(folder, TrainingConfig()) as checkpoints:
        checkpoints.save(Snapshot(step=1, params=params, opt_state=opt_state, position={"n": 1}))
        checkpoints.wait()
        saving = time.perf_counter() - start
        snapshot = checkpoints.restore(*abstract)
    restoring = time.perf_counter() - start - saving
    pairs = zip(
        jax.tree.leaves((snapshot.params, snapshot.opt_state)),
        jax.tree.leaves(arrays),
        strict=True,
    )
    return RoundTrip(
        size=sum(array.nbytes for array in jax.tree.leaves(arrays)),
        saving=saving,
        restoring=restoring,
        is_same=all(_same_shards(restored, original) for restored, original in pairs),
    )


def _same_shards(restored: jax.Array, original: jax.Array) -> bool:
    """Whether this process's parts of two arrays are equal."""
    shards = zip(restored.addressable_shards, original.addressable_shards, strict=True)
    return all(np.array_equal(shard.data, expected.data) for shard, expected in shards)


def _there_and_back(folder: Path, place: Path) -> Finding:
    width = _SAVED // 4 // 64 // jax.device_count()
    table = spread(64, width, lambda n: np.random.default_rng(n).random((64, width), np.float32))
    trip = round_trip(folder, {"table": table}, {})
    text = (
        f"{trip.size / 1e6:.0f} MB to {place} in {trip.saving:.1f} s and back in "
        f"{trip.restoring:.1f} s"
    )
    if not trip.is_same:
        return Finding("checkpoint", "FAIL", f"{text}; it came back changed", "try another disk")
    return noted("checkpoint", f"{text}, digests as saved", values=trip.values)
