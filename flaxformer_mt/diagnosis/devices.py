"""Which devices JAX has, and whether they are the ones that the machine has."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jax

from flaxformer_mt.diagnosis.finding import Finding
from flaxformer_mt.parallel import Processes
from flaxformer_mt.parallel.chips import chip_of

_GIB = 1 << 30
# What the kernel shows where there is such a device.
_SIGNS = {
    "gpu": ("/dev/nvidia0", "/proc/driver/nvidia/version"),
    "tpu": ("/dev/accel0", "/dev/vfio/0"),
}
_EXTRA = {"gpu": "cuda", "tpu": "tpu"}


def check_devices(processes: Processes) -> Iterator[Finding]:
    devices, here = jax.devices(), jax.local_devices()
    kinds = Counter(device.device_kind for device in devices)
    text = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
    if processes.count > 1:
        text += f"; {len(here)} of this process, {processes.number} of {processes.count}"
    platform = here[0].platform
    values = {"platform": platform, "count": len(devices), "kind": here[0].device_kind}
    advice = overlooked(platform)
    if advice:
        asked = os.environ.get("JAX_PLATFORMS")
        yield Finding("devices", "warn" if asked else "FAIL", text, advice, values)
    elif len(kinds) > 1:
        yield Finding("devices", "warn", text, "a mesh is as fast as its slowest device", values)
    else:
        yield Finding("devices", "ok", text, values=values)
    yield from _memory(here)
    if platform != "cpu" and chip_of(here[0].device_kind) is None:
        yield Finding(
            "chip",
            "warn",
            f"the peak of {here[0].device_kind!r} is unknown",
            "training.chip_tflops=TFLOPS gives MFU something to be a share of",
        )


def overlooked(platform: str) -> str:
    """What to do where the machine has an accelerator that JAX does not use, or nothing."""
    if platform != "cpu":
        return ""
    for kind, signs in _SIGNS.items():
        if any(Path(sign).exists() for sign in signs):
            if asked := os.environ.get("JAX_PLATFORMS"):
                return f"there is a {kind.upper()}, and JAX_PLATFORMS={asked} leaves it out"
            extra = _EXTRA[kind]
            return (
                f"there is a {kind.upper()} that JAX does not see: "
                f"pip install 'flaxformer-mt[{extra}]' (FLAXFORMER_EXTRAS={extra} with launch/), "
                "and see that no other process holds it"
            )
    return ""


def _memory(devices: list[jax.Device]) -> Iterator[Finding]:
    """Of the fullest device; CPUs do not count theirs."""
    stats = [found for device in devices if (found := device.memory_stats())]
    counted = [(found.get("bytes_in_use", 0), found.get("bytes_limit", 0)) for found in stats]
    if not counted or not counted[0][1]:
        return
    used, limit = max(counted)
    text = f"{limit / _GIB:.1f} GiB a device, {used / _GIB:.2f} GiB of it in use"
    values: dict[str, float | str | None] = {"limit": limit, "used": used}
    if used > limit / 2:
        yield Finding("memory", "warn", text, "another program is on the device: end it", values)
    else:
        yield Finding("memory", "ok", text, values=values)
