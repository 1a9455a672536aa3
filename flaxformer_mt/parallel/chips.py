"""What a device can do: stated peaks by the name that JAX has for it, and rates measured here.

Every figure is that of one JAX *device*. On most kinds a device is a chip; on TPU v2, v3 and 7x it
is one of a chip's two cores, with half of what the vendor states for the chip. Decimal units:
FLOP/s, bytes/s, Hz; memory in bytes.

Sources, looked up in November 2026:

  [tpu]   Cloud TPU documentation, system architecture of each version,
          https://docs.cloud.google.com/tpu/docs/v5e and .../v2 to .../tpu7x: peak, HBM, ICI, DCN.
  [book]  "How to Scale Your Model", part 2, https://jax-ml.github.io/scaling-book/tpus: bandwidth
          of one ICI link, 25 GB/s of data-centre network for a host where [tpu] has no figure.
  [isca]  Jouppi et al., "TPU v4", ISCA 2023, https://arxiv.org/abs/2304.01433, tables 4 and 5:
          clocks and links of v2, v3 (4 of 62 and 70 GB/s a chip), v4.
  [mxu]   Clock of later TPUs: the stated peak over the FLOPs a cycle of the matrix units (2 x 128 x
          128 each; twice 256 x 256 from v6e on). The cycles that libtpu 0.0.42 estimates for one
          large bfloat16 product agree with that rate: they imply 70 to 93 per cent of the peak.
  [nv]    NVIDIA data sheets, https://www.nvidia.com/en-us/data-center/ (v100, a100, l4, l40s, h100,
          h200): dense peak without sparsity (of L4, H100, H200 half of what is stated with it; of
          B200 a quarter of DGX B200's sparse FP8), memory, NVLink of one direction, boost clock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

_GIB = 2**30
_GB = 1e9


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chip:
    """Peaks of one device as JAX counts devices. Units: the module's docstring."""

    name: str
    kinds: tuple[str, ...]  # what `device.device_kind` says; case does not matter
    bf16_flops: float  # dense bfloat16 (float16 where `half` says so), float32 sums
    hbm_bytes: int
    hbm_bandwidth: float
    clock: float
    link_bandwidth: float = 0.0  # one direction of one ICI link (a GPU: of all NVLinks together)
    links: int = 0  # such links of a device
    dcn_bandwidth: float = 0.0  # a device's share of its host's data-centre network, one direction
    devices_per_chip: int = 1
    wraps_at: int = 0  # a side of the slice of this many chips, or a multiple, is closed to a ring
    half: str = "bfloat16"


def _chip(
    name: str,
    tflops: float,
    memory: float,
    bandwidth: float,
    clock: float,
    link: float = 0.0,
    links: int = 1,
    network: float = 0.0,
    wraps_at: int = 0,
    *,
    kinds: tuple[str, ...] = (),
    devices_per_chip: int = 1,
    half: str = "bfloat16",
) -> Chip:
    return Chip(
        name=name,
        kinds=kinds or (name,),
        bf16_flops=tflops * 1e12,
        hbm_bytes=int(memory),
        hbm_bandwidth=bandwidth * _GB,
        clock=clock * 1e9,
        link_bandwidth=link * _GB,
        links=links if link else 0,
        dcn_bandwidth=network * _GB,
        devices_per_chip=devices_per_chip,
        wraps_at=wraps_at,
        half=half,
    )


_V5E = ("TPU v5 lite", "TPU v5e")
_V5P = ("TPU v5", "TPU v5p")
_V6E = ("TPU v6 lite", "TPU v6e")
_7X = ("TPU7x", "TPU v7x", "TPU7")
_V100_16GB = ("Tesla V100-SXM2-16GB",)
_V100_32GB = ("Tesla V100-SXM2-32GB", "Tesla V100-SXM3-32GB")
_A100_40GB = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB")
_A100_80GB = ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe")
_H100 = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5 80GB")

# TFLOP/s, memory in bytes, HBM GB/s, clock GHz (a GPU's boost), GB/s of a link (of all NVLinks),
# links, network GB/s, closed to rings at. The tensor cores of V100 and T4 have no bfloat16: their
# peak is float16's.
CHIPS = (
    _chip("TPU v2", 23, 8 * _GIB, 350, 0.7, 31, 4, 3.125, 16, devices_per_chip=2),
    _chip("TPU v3", 61.5, 16 * _GIB, 450, 0.94, 35, 4, 3.125, 32, devices_per_chip=2),
    _chip("TPU v4", 275, 32 * _GIB, 1200, 1.05, 50, 6, 6.25, 4),
    _chip("TPU v5e", 197, 16 * _GIB, 819, 1.5, 50, 4, 3.125, 16, kinds=_V5E),
    _chip("TPU v5p", 459, 95 * _GIB, 2765, 1.75, 100, 6, 6.25, 4, kinds=_V5P),
    _chip("TPU v6e", 918, 32 * _GIB, 1638, 1.75, 100, 4, 12.5, 16, kinds=_V6E),
    _chip("TPU 7x", 1153.5, 96 * _GIB, 3690, 2.2, 50, 6, 6.25, 4, kinds=_7X, devices_per_chip=2),
    _chip("NVIDIA V100 16GB", 125, 16 * _GIB, 900, 1.53, 150, kinds=_V100_16GB, half="float16"),
    _chip("NVIDIA V100 32GB", 125, 32 * _GIB, 900, 1.53, 150, kinds=_V100_32GB, half="float16"),
    _chip("NVIDIA T4", 65, 16 * _GIB, 320, 1.59, kinds=("Tesla T4",), half="float16"),
    _chip("NVIDIA A10", 125, 24 * _GIB, 600, 1.695),
    _chip("NVIDIA A100 40GB", 312, 40 * _GIB, 1555, 1.41, 300, kinds=_A100_40GB),
    _chip("NVIDIA A100 80GB", 312, 80 * _GIB, 2039, 1.41, 300, kinds=_A100_80GB),
    _chip("NVIDIA L4", 121, 24 * _GIB, 300, 2.04),
    _chip("NVIDIA L40S", 362, 48 * _GIB, 864, 2.52),
    _chip("NVIDIA H100 PCIe", 756, 80 * _GIB, 2000, 1.755, 300),
    _chip("NVIDIA H100", 989.5, 80 * _GIB, 3350, 1.83, 450, kinds=_H100),
    _chip("NVIDIA H200", 989.5, 141 * _GB, 4800, 1.83, 450),
    _chip("NVIDIA B200", 2250, 180 * _GB, 8000, 1.965, 900),
)


def chip_of(device_kind: str) -> Chip | None:
    """The entry for a JAX device's `device_kind`; None for one that the table does not have."""
    wanted = device_kind.strip().casefold()
    for chip in CHIPS:
        if wanted in (kind.casefold() for kind in chip.kinds):
            return chip
    return None


def cpu_features() -> frozenset[str]:
    """This CPU's instruction sets by Linux's names; empty where the system doesn't tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def fastest_dtype(device: jax.Device) -> Literal["bfloat16", "float32"]:
    """What `model.dtype = "auto"` means on a device: bfloat16 where it multiplies that itself."""
    if device.platform == "cpu":
        # Elsewhere XLA widens the operands first: base's step then takes longer than in float32.
        fast = not cpu_features().isdisjoint({"amx_bf16", "avx512_bf16"})
    else:
        chip = chip_of(device.device_kind)
        fast = chip is None or chip.half == "bfloat16"
    return "bfloat16" if fast else "float32"


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
