"""The best speed of a machine's matrix products in one package: `jax` or `torch`.

    python -m benchmarks.training_contestants.ceiling jax|torch

Answers each line, a number type, with FLOP/s of a square product (the best of several tries).
"""

import json
import sys
import time

# Sizes that fill the device, and how many products one call to an accelerator has.
_ON_CPU = (2048, 1)
_ON_ACCELERATOR = (8192, 20)
_SECONDS = 1.5


def jax_flops(dtype: str) -> float:
    import jax

    from flaxformer_mt.parallel.chips import product_flops

    device = jax.devices()[0]
    size, times = _ON_CPU if device.platform == "cpu" else _ON_ACCELERATOR
    return product_flops(device, dtype=dtype, size=size, seconds=_SECONDS, times=times)


def torch_flops(dtype: str) -> float:
    import torch

    from benchmarks.training_contestants.torch_steps import device, prepare

    prepare()
    place = device()
    size, times = _ON_CPU if place.type == "cpu" else _ON_ACCELERATOR
    kind = getattr(torch, dtype)
    # As `product_flops` has them.
    left = torch.randn(size, size, device=place).to(kind)
    right = (torch.randn(size, size, device=place) * size**-0.5).to(kind)

    def once() -> float:
        start, product = time.perf_counter(), left
        for _ in range(times):
            product = product @ right
        float(product[0, 0])  # waits
        return time.perf_counter() - start

    once()
    best, begin = float("inf"), time.perf_counter()
    while best == float("inf") or time.perf_counter() - begin < _SECONDS:
        best = min(best, once())
    return 2 * size**3 * times / best


if __name__ == "__main__":
    measured = {"jax": jax_flops, "torch": torch_flops}[sys.argv[1]]
    for line in sys.stdin:
        print(json.dumps({"flops": measured(line.strip())}), flush=True)
