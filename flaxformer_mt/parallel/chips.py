"""What an accelerator can do at best: matrix peak, memory, bandwidths, clock; by the name JAX has.

Every figure is that of one JAX *device*. On most kinds a device is a chip; on TPU v2, v3 and 7x it
is one of a chip's two cores, with half of what the vendor states for the chip. Decimal units:
FLOP/s, bytes/s, Hz; memory in bytes.

Sources, looked up in November 2026:

  [tpu]   Cloud TPU documentation, system architecture of each version,
          https://docs.cloud.google.com/tpu/docs/v5e and .../v2 to .../tpu7x: peak, HBM, ICI, DCN.
  [book]  "How to Scale Your Model", part 2, https://jax-ml.github.io/scaling-book/tpus: bandwidth
          of one ICI link, 25 GB/s of data-centre network for a host where [tpu] has no figure.
  [isca]  Jouppi et al., "TPU v4", ISCA 2023, https://arxiv.org/abs/2304.01433, tables 4 and 5:
          clocks and links of v2, v3, v4.
  [mxu]   Clock of later TPUs: the stated peak over the FLOPs a cycle of the matrix units (2 x 128 x
          128 each; twice 256 x 256 from v6e on). The cycles that libtpu 0.0.42 estimates for one
          large bfloat16 product agree with that rate: they imply 70 to 93 per cent of the peak.
  [nv]    NVIDIA data sheets, https://www.nvidia.com/en-us/data-center/ (v100, a100, l4, l40s, h100,
          h200): dense peak without sparsity, memory, NVLink of one direction, boost clock.
"""

from __future__ import annotations

import dataclasses

_GIB = 2**30
_GB = 1e9
_T = 1e12


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
    source: str = ""

    @property
    def is_tpu(self) -> bool:
        return self.kinds[0].startswith("TPU")


CHIPS: tuple[Chip, ...] = (
    Chip(
        name="TPU v2",
        kinds=("TPU v2",),
        bf16_flops=23 * _T,
        hbm_bytes=8 * _GIB,
        hbm_bandwidth=350 * _GB,
        clock=0.70e9,
        link_bandwidth=31 * _GB,
        links=4,
        dcn_bandwidth=3.125 * _GB,
        devices_per_chip=2,
        wraps_at=16,
        source="[tpu] v2; [isca] clock, 4 links of 62 GB/s a chip; [book] DCN",
    ),
    Chip(
        name="TPU v3",
        kinds=("TPU v3",),
        bf16_flops=61.5 * _T,
        hbm_bytes=16 * _GIB,
        hbm_bandwidth=450 * _GB,
        clock=0.94e9,
        link_bandwidth=35 * _GB,
        links=4,
        dcn_bandwidth=3.125 * _GB,
        devices_per_chip=2,
        wraps_at=32,
        source="[tpu] v3; [isca] clock, 4 links of 70 GB/s a chip; [book] DCN",
    ),
    Chip(
        name="TPU v4",
        kinds=("TPU v4",),
        bf16_flops=275 * _T,
        hbm_bytes=32 * _GIB,
        hbm_bandwidth=1200 * _GB,
        clock=1.05e9,
        link_bandwidth=50 * _GB,
        links=6,
        dcn_bandwidth=6.25 * _GB,
        wraps_at=4,
        source="[tpu] v4; [isca] clock, links; [book] DCN",
    ),
    Chip(
        name="TPU v5e",
        kinds=("TPU v5 lite", "TPU v5e"),
        bf16_flops=197 * _T,
        hbm_bytes=16 * _GIB,
        hbm_bandwidth=819 * _GB,
        clock=1.50e9,
        link_bandwidth=50 * _GB,
        links=4,
        dcn_bandwidth=3.125 * _GB,
        wraps_at=16,
        source="[tpu] v5e: ICI 400 GB/s both ways, 2 x 100 Gbit/s for 8 chips; [mxu] clock",
    ),
    Chip(
        name="TPU v5p",
        kinds=("TPU v5", "TPU v5p"),
        bf16_flops=459 * _T,
        hbm_bytes=95 * _GIB,
        hbm_bandwidth=2765 * _GB,
        clock=1.75e9,
        link_bandwidth=100 * _GB,
        links=6,
        dcn_bandwidth=6.25 * _GB,
        wraps_at=4,
        source="[tpu] v5p: ICI 1,200 GB/s both ways, DCN 50 Gbit/s; [mxu] clock",
    ),
    Chip(
        name="TPU v6e",
        kinds=("TPU v6 lite", "TPU v6e"),
        bf16_flops=918 * _T,
        hbm_bytes=32 * _GIB,
        hbm_bandwidth=1638 * _GB,
        clock=1.75e9,
        link_bandwidth=100 * _GB,
        links=4,
        dcn_bandwidth=12.5 * _GB,
        wraps_at=16,
        source="[tpu] v6e: ICI 800 GB/s both ways, DCN 25.6 Tbit/s for 256 chips; [mxu] clock",
    ),
    Chip(
        name="TPU 7x",
        kinds=("TPU7x", "TPU v7x", "TPU7"),
        bf16_flops=1153.5 * _T,
        hbm_bytes=96 * _GIB,
        hbm_bandwidth=3690 * _GB,
        clock=2.20e9,
        link_bandwidth=50 * _GB,
        links=6,
        dcn_bandwidth=6.25 * _GB,
        devices_per_chip=2,
        wraps_at=4,
        source="[tpu] tpu7x: a chip has 2,307 TFLOP/s, 192 GiB, 7,380 GB/s, ICI 1,200 GB/s both "
        "ways, DCN 100 Gbit/s; [mxu] clock",
    ),
    Chip(
        name="NVIDIA V100 16GB",
        kinds=("Tesla V100-SXM2-16GB",),
        bf16_flops=125 * _T,
        hbm_bytes=16 * _GIB,
        hbm_bandwidth=900 * _GB,
        clock=1.53e9,
        link_bandwidth=150 * _GB,
        links=1,
        half="float16",
        source="[nv] V100 SXM2; no bfloat16 in its tensor cores: the peak is float16's",
    ),
    Chip(
        name="NVIDIA V100 32GB",
        kinds=("Tesla V100-SXM2-32GB", "Tesla V100-SXM3-32GB"),
        bf16_flops=125 * _T,
        hbm_bytes=32 * _GIB,
        hbm_bandwidth=900 * _GB,
        clock=1.53e9,
        link_bandwidth=150 * _GB,
        links=1,
        half="float16",
        source="[nv] V100 SXM2, SXM3; no bfloat16: the peak is float16's",
    ),
    Chip(
        name="NVIDIA T4",
        kinds=("Tesla T4",),
        bf16_flops=65 * _T,
        hbm_bytes=16 * _GIB,
        hbm_bandwidth=320 * _GB,
        clock=1.59e9,
        half="float16",
        source="[nv] T4; no bfloat16 in its tensor cores: the peak is float16's",
    ),
    Chip(
        name="NVIDIA A10",
        kinds=("NVIDIA A10",),
        bf16_flops=125 * _T,
        hbm_bytes=24 * _GIB,
        hbm_bandwidth=600 * _GB,
        clock=1.695e9,
        source="[nv] A10",
    ),
    Chip(
        name="NVIDIA A100 40GB",
        kinds=("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"),
        bf16_flops=312 * _T,
        hbm_bytes=40 * _GIB,
        hbm_bandwidth=1555 * _GB,
        clock=1.41e9,
        link_bandwidth=300 * _GB,
        links=1,
        source="[nv] A100",
    ),
    Chip(
        name="NVIDIA A100 80GB",
        kinds=("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"),
        bf16_flops=312 * _T,
        hbm_bytes=80 * _GIB,
        hbm_bandwidth=2039 * _GB,
        clock=1.41e9,
        link_bandwidth=300 * _GB,
        links=1,
        source="[nv] A100 SXM",
    ),
    Chip(
        name="NVIDIA L4",
        kinds=("NVIDIA L4",),
        bf16_flops=121 * _T,
        hbm_bytes=24 * _GIB,
        hbm_bandwidth=300 * _GB,
        clock=2.04e9,
        source="[nv] L4: 242 TFLOP/s with sparsity, half of it without",
    ),
    Chip(
        name="NVIDIA L40S",
        kinds=("NVIDIA L40S",),
        bf16_flops=362 * _T,
        hbm_bytes=48 * _GIB,
        hbm_bandwidth=864 * _GB,
        clock=2.52e9,
        source="[nv] L40S",
    ),
    Chip(
        name="NVIDIA H100 PCIe",
        kinds=("NVIDIA H100 PCIe",),
        bf16_flops=756 * _T,
        hbm_bytes=80 * _GIB,
        hbm_bandwidth=2000 * _GB,
        clock=1.755e9,
        link_bandwidth=300 * _GB,
        links=1,
        source="[nv] H100 PCIe",
    ),
    Chip(
        name="NVIDIA H100",
        kinds=("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5 80GB"),
        bf16_flops=989.5 * _T,
        hbm_bytes=80 * _GIB,
        hbm_bandwidth=3350 * _GB,
        clock=1.83e9,
        link_bandwidth=450 * _GB,
        links=1,
        source="[nv] H100 SXM: 1,979 TFLOP/s with sparsity, half of it without",
    ),
    Chip(
        name="NVIDIA H200",
        kinds=("NVIDIA H200",),
        bf16_flops=989.5 * _T,
        hbm_bytes=int(141 * _GB),
        hbm_bandwidth=4800 * _GB,
        clock=1.83e9,
        link_bandwidth=450 * _GB,
        links=1,
        source="[nv] H200 SXM: 1,979 TFLOP/s with sparsity, half of it without",
    ),
    Chip(
        name="NVIDIA B200",
        kinds=("NVIDIA B200",),
        bf16_flops=2250 * _T,
        hbm_bytes=int(180 * _GB),
        hbm_bandwidth=8000 * _GB,
        clock=1.965e9,
        link_bandwidth=900 * _GB,
        links=1,
        source="[nv] DGX B200: 8 have 72 PFLOP/s of sparse FP8, a quarter of it in dense bfloat16",
    ),
)


def chip_of(device_kind: str) -> Chip | None:
    """The entry for a JAX device's `device_kind`; None for one that the table does not have."""
    wanted = device_kind.strip().casefold()
    for chip in CHIPS:
        if wanted in (kind.casefold() for kind in chip.kinds):
            return chip
    return None
