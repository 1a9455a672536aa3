"""What a device does when it is asked for one thing only: a matrix product, a copy to it."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np


def product_flops(
    device: jax.Device, *, dtype: str, size: int, seconds: float, times: int = 1
) -> float:
    """FLOP/s of `times` chained products of square matrices, the best of several tries.

    Tries go on for about `seconds`; compiling, which comes before, is not among them. `size` is
    what fills the device; `times` hides the time that it takes to ask an accelerator for anything.
    """

    def chain(a: jax.Array, b: jax.Array) -> jax.Array:
        def once(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jnp.matmul(x, b, preferred_element_type=jnp.float32).astype(dtype), None

        return jax.lax.scan(once, a, None, length=times)[0]

    # Random numbers, as a model has: a GPU multiplies zeros and ones faster, as that takes less
    # power. With the second matrix scaled, products keep the size of their numbers.
    random = np.random.default_rng(0)
    left, right = (
        jax.device_put(
            (scale * random.standard_normal((size, size), np.float32)).astype(dtype), device
        )
        for scale in (1.0, size**-0.5)
    )
    product = jax.jit(chain)
    product(left, right).block_until_ready()
    best, begin = float("inf"), time.perf_counter()
    while best == float("inf") or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        product(left, right).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 * times / best


def upload_bandwidth(device: jax.Device, *, size: int = 1 << 26, tries: int = 5) -> float:
    """Bytes per second of a copy of `size` bytes from host memory, the best of some tries."""
    host = np.ones(size // 4, np.float32)
    jax.device_put(host, device).block_until_ready()
    best = float("inf")
    for number in range(tries):
        host[0] = number  # no copy of before will do
        start = time.perf_counter()
        # On a CPU device the array may be taken as it is, without any copy.
        jax.device_put(host, device, may_alias=False).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return size / best
