"""Device capability: published peaks by JAX's device name, and measured rates.

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
  [nv]    NVIDIA data sheets, https://www.nvidia.com/en-us/data-center/ (v100, a10, a100, l4, l40s,
          h100, h200), for consumer cards and workstations the white papers of their architectures
          (GA102, Ada, RTX Blackwell): dense peak without sparsity (of L4, H100, H200 half of what
          is stated with it; of B200 a quarter of DGX B200's sparse FP8) with float32 sums, boost
          clock, memory's bandwidth, NVLink or PCIe in one direction.
  [xla]   XLA's descriptions of GPUs, https://github.com/openxla/xla, folder
          xla/backends/gpu/target_config/specs: memory as CUDA reports it, and its bandwidth, of
          A100, RTX A6000, H100, H200, B200, RTX PRO 6000. Other cards have their nominal memory.
"""

import contextlib
import dataclasses
import re
import time
import timeit
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

_GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Chip:
    """Peaks of one device as JAX counts devices. Units: the module's docstring."""

    name: str
    bf16_flops: float  # dense bfloat16 (float16 where `half` says so), float32 sums
    # Of chips that steps are planned for.
    hbm_bytes: int = 0
    hbm_bandwidth: float = 0.0
    clock: float = 0.0
    link_bandwidth: float = 0.0  # one direction of one ICI link, or of all a GPU's links to others
    dcn_bandwidth: float = 0.0  # a device's share of its host's data-centre network, one direction
    wraps_at: int = 0  # a side of the slice of this many chips, or a multiple, is closed to a ring
    aliases: tuple[str, ...] = ()  # other values of `device.device_kind`, in any case
    devices_per_chip: int = 1
    half: str = "bfloat16"
    link: str = "ICI"  # the network between chips of a slice or machine


_7X = ("TPU7x", "TPU v7x", "TPU7")
_V100 = ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB", "Tesla V100-SXM3-32GB")
_A100_40 = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB")
_A100_80 = ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe")
_H100 = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5 80GB")
_PRO_6000 = (
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition",
)


def _gpu(
    name: str,
    bf16_flops: float,
    memory: int,
    bandwidth: float,
    clock: float,
    link_bandwidth: float,
    *,
    aliases: tuple[str, ...] = (),
) -> Chip:
    """A GPU that steps are planned for. Over PCIe, 16 lanes carry 32 or 64 GB/s."""
    return Chip(
        name,
        bf16_flops,
        memory,
        bandwidth,
        clock,
        link_bandwidth,
        aliases=aliases,
        link="PCIe" if link_bandwidth <= 64e9 else "NVLink",
    )


# FLOP/s, memory, its bandwidth, clock, a link; of TPUs also network, closed to rings at. The tensor
# cores of V100 and T4 have no bfloat16: their peak is float16's.
CHIPS = (
    Chip("TPU v2", 23e12, 8 * _GIB, 350e9, 0.7e9, 31e9, 3.125e9, 16, devices_per_chip=2),
    Chip("TPU v3", 61.5e12, 16 * _GIB, 450e9, 0.94e9, 35e9, 3.125e9, 32, devices_per_chip=2),
    Chip("TPU v4", 275e12, 32 * _GIB, 1200e9, 1.05e9, 50e9, 6.25e9, 4),
    Chip("TPU v5e", 197e12, 16 * _GIB, 819e9, 1.5e9, 50e9, 3.125e9, 16, aliases=("TPU v5 lite",)),
    Chip("TPU v5p", 459e12, 95 * _GIB, 2765e9, 1.75e9, 100e9, 6.25e9, 4, aliases=("TPU v5",)),
    Chip("TPU v6e", 918e12, 32 * _GIB, 1638e9, 1.75e9, 100e9, 12.5e9, 16, aliases=("TPU v6 lite",)),
    Chip("TPU 7x", 1153.5e12, 96 * _GIB, 3690e9, 2.2e9, 50e9, 6.25e9, 4, _7X, devices_per_chip=2),
    Chip("NVIDIA V100", 125e12, aliases=_V100, half="float16"),
    Chip("NVIDIA T4", 65e12, aliases=("Tesla T4",), half="float16"),
    _gpu("NVIDIA A10", 125e12, 24 * _GIB, 600e9, 1.695e9, 32e9),
    _gpu("NVIDIA A100", 312e12, 85100068864, 2039e9, 1.41e9, 300e9, aliases=_A100_80),
    _gpu("NVIDIA A100 40GB", 312e12, 42331013120, 1555e9, 1.41e9, 300e9, aliases=_A100_40),
    _gpu("NVIDIA RTX A6000", 154.8e12, 51041271808, 768e9, 1.8e9, 32e9),
    _gpu("NVIDIA GeForce RTX 3090", 71e12, 24 * _GIB, 936e9, 1.695e9, 32e9),
    _gpu("NVIDIA L4", 121e12, 24 * _GIB, 300e9, 2.04e9, 32e9),
    _gpu("NVIDIA L40S", 362e12, 48 * _GIB, 864e9, 2.52e9, 32e9),
    _gpu("NVIDIA GeForce RTX 4090", 165.2e12, 24 * _GIB, 1008e9, 2.52e9, 32e9),
    _gpu("NVIDIA H100 PCIe", 756e12, 84942979072, 2039e9, 1.755e9, 64e9),
    _gpu("NVIDIA H100", 989.5e12, 84942979072, 3352e9, 1.98e9, 450e9, aliases=_H100),
    _gpu("NVIDIA H200", 989.5e12, 151397597184, 4800e9, 1.98e9, 450e9),
    _gpu("NVIDIA B200", 2250e12, 191514411008, 7672e9, 1.965e9, 900e9),
    _gpu("NVIDIA GeForce RTX 5090", 209.5e12, 32 * _GIB, 1792e9, 2.407e9, 64e9),
    _gpu(
        "NVIDIA RTX PRO 6000 Blackwell",
        503.8e12,
        103079215104,
        1792e9,
        2.6e9,
        64e9,
        aliases=_PRO_6000,
    ),
)


AMPERE = (8, 0)  # the first NVIDIA GPUs that multiply bfloat16


def chip_of(device_kind: str) -> Chip | None:
    """The entry for a JAX device's `device_kind`; None if the table has none."""
    kind = device_kind.strip().casefold()
    for chip in CHIPS:
        if kind in (name.casefold() for name in (chip.name, *chip.aliases)):
            return chip
    return None


def cpu_features() -> frozenset[str]:
    """This CPU's instruction sets by Linux's names; empty where the system doesn't tell."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                return frozenset(line.partition(":")[2].split())
    return frozenset()


def cuda_capability(device: jax.Device) -> tuple[int, int] | None:
    """An NVIDIA GPU's compute capability, such as (9, 0); None for others (AMD's is a name)."""
    match = re.fullmatch(r"(\d+)\.(\d+)", getattr(device, "compute_capability", ""))
    return (int(match[1]), int(match[2])) if match else None


def fastest_dtype(device: jax.Device) -> Literal["bfloat16", "float32"]:
    """The type that `model.dtype = "auto"` stands for: bfloat16 if the device multiplies it."""
    if device.platform == "cpu":
        # Elsewhere XLA widens the operands first: base's step then takes longer than in float32.
        fast = not cpu_features().isdisjoint({"amx_bf16", "avx512_bf16"})
    else:
        # NVIDIA's GPUs do from Ampere on; AMD's all do.
        capability = cuda_capability(device)
        fast = capability is None or capability >= AMPERE
    return "bfloat16" if fast else "float32"


def product_flops(
    device: jax.Device, *, dtype: str, size: int, seconds: float, times: int = 1
) -> float:
    """FLOP/s of `times` chained products of square matrices, best of about `seconds` of tries.

    `size` must fill the device; `times` hides the latency of asking an accelerator.
    """

    def chain(a: jax.Array, b: jax.Array) -> jax.Array:
        def once(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jnp.matmul(x, b, preferred_element_type=jnp.float32).astype(dtype), None

        return jax.lax.scan(once, a, None, length=times)[0]

    # Random, since a GPU multiplies zeros and ones with less power, so faster. The second matrix is
    # scaled so that products keep their size.
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
    """Bytes per second of a copy of `size` bytes from host memory, best of `tries`."""
    host = np.ones(size // 4, np.float32)

    def copy() -> None:
        host[0] += 1  # so that no earlier copy can be reused
        # On a CPU device the array may be taken as it is, without any copy.
        jax.device_put(host, device, may_alias=False).block_until_ready()

    return size / min(timeit.repeat(copy, number=1, repeat=tries))
