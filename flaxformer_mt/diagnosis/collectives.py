"""Whether all devices, and all processes, reach each other, and how fast."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from flaxformer_mt.diagnosis.finding import Finding
from flaxformer_mt.diagnosis.software import versions
from flaxformer_mt.parallel import Processes

_BYTES = 1 << 26  # of float32, on each device: about the gradient of a base model's quarter
_TRIES = 3


def check_collective() -> Iterator[Finding]:
    """A sum over all devices, of numbers that name them."""
    count = jax.device_count()
    if count == 1:
        yield Finding("collective", "ok", "one device: nothing to exchange")
        return
    mesh = Mesh(np.asarray(jax.devices()), ("device",))
    split = NamedSharding(mesh, PartitionSpec("device"))
    length = _BYTES // 4 // (8 if jax.devices()[0].platform == "cpu" else 1)

    def own_number(index: Any) -> np.ndarray:
        return np.full((1, length), index[0].start or 0, np.float32)

    rows = jax.make_array_from_callback(
        (count, length),
        split,
        own_number,
    )
    total = jax.jit(
        lambda array: jnp.sum(array, axis=0),
        out_shardings=NamedSharding(mesh, PartitionSpec()),
    )
    found = np.asarray(total(rows).addressable_data(0))
    wanted = count * (count - 1) / 2
    seconds = float("inf")
    for _ in range(_TRIES):
        start = time.perf_counter()
        total(rows).block_until_ready()
        seconds = min(seconds, time.perf_counter() - start)
    rate = 4 * length / seconds
    text = f"a sum over {count} devices: {4 * length / 1e6:.0f} MB each at {rate / 1e9:.2f} GB/s"
    values = {"devices": count, "bytes_per_second": rate}
    if (found != wanted).any():
        advice = "devices do not reach each other as they should: check the network between them"
        yield Finding("collective", "FAIL", f"{text}; the sum is wrong", advice, values)
    else:
        yield Finding("collective", "ok", text, values=values)


def check_processes(processes: Processes) -> Iterator[Finding]:
    """Whether all processes run the same code on the same kind of device."""
    if processes.count == 1:
        return
    mine = json.dumps([versions(), jax.local_devices()[0].device_kind, jax.local_device_count()])
    told = processes.gather([mine])
    others = [number for number, (text,) in enumerate(told) if text != told[0][0]]
    text = f"{processes.count} processes"
    if others:
        named = ", ".join(map(str, others))
        advice = "versions, devices and commit must be the same everywhere"
        yield Finding("processes", "FAIL", f"{text}; {named} not as the first", advice)
    else:
        yield Finding("processes", "ok", f"{text} with the same versions and devices")
