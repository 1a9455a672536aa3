"""NVIDIA GPUs, described so that XLA compiles for them on a machine without one.

XLA chooses tiles, fusions and libraries by the figures below, and needs no driver. Sources: `[xla]`
and `[nv]` of `parallel/chips.py`; limits of an architecture: CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability".
"""

import dataclasses
import importlib.metadata
import importlib.util
import os
import re
from typing import Any

import jax
from jax.errors import JaxRuntimeError
from jax.experimental import topologies

from flaxformer_mt.errors import install
from flaxformer_mt.parallel.chips import Chip, chip_of
from flaxformer_mt.planning import TPU_VERSIONS, PlanningError
from flaxformer_mt.planning.compiler import captured
from flaxformer_mt.planning.topology import Topology

_KIB = 2**10
_MIB = 2**20
_DNN = (9, 12)  # cuDNN's version, which XLA asks for before it uses its attention
_MOST = 8  # GPUs of one machine
_EXAMPLES = "for example h100, h100:8 (eight over NVLink) or v5e:2x4"
PLUGIN = "jax_cuda13_plugin"


@dataclasses.dataclass(frozen=True)
class Gpu:
    """What the compiler asks about a card beyond `Chip`."""

    kind: str  # as JAX calls the device
    capability: tuple[int, int]
    cores: int  # streaming multiprocessors
    l2_bytes: int


@dataclasses.dataclass(frozen=True)
class Core:
    """A streaming multiprocessor of one architecture."""

    float32_units: int
    threads: int
    shared_memory: int  # bytes
    block_shared_memory: int  # most bytes of one block, if it asks for them


GPUS = {
    "a10": Gpu("NVIDIA A10", (8, 6), 72, 6 * _MIB),
    "a100": Gpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 40 * _MIB),
    "a100-40gb": Gpu("NVIDIA A100-SXM4-40GB", (8, 0), 108, 40 * _MIB),
    "rtx-a6000": Gpu("NVIDIA RTX A6000", (8, 6), 84, 6 * _MIB),
    "rtx-3090": Gpu("NVIDIA GeForce RTX 3090", (8, 6), 82, 6 * _MIB),
    "l4": Gpu("NVIDIA L4", (8, 9), 58, 48 * _MIB),
    "l40s": Gpu("NVIDIA L40S", (8, 9), 142, 96 * _MIB),
    "rtx-4090": Gpu("NVIDIA GeForce RTX 4090", (8, 9), 128, 72 * _MIB),
    "h100": Gpu("NVIDIA H100 80GB HBM3", (9, 0), 132, 50 * _MIB),
    "h100-pcie": Gpu("NVIDIA H100 PCIe", (9, 0), 114, 50 * _MIB),
    "h200": Gpu("NVIDIA H200", (9, 0), 132, 50 * _MIB),
    "b200": Gpu("NVIDIA B200", (10, 0), 148, 132644864),
    "rtx-5090": Gpu("NVIDIA GeForce RTX 5090", (12, 0), 170, 96 * _MIB),
    "rtx-pro-6000": Gpu("NVIDIA RTX PRO 6000 Blackwell", (12, 0), 188, 128 * _MIB),
}
_CORES = {
    (8, 0): Core(64, 2048, 164 * _KIB, 163 * _KIB),
    (8, 6): Core(128, 1536, 100 * _KIB, 99 * _KIB),
    (8, 9): Core(128, 1536, 100 * _KIB, 99 * _KIB),
    (9, 0): Core(128, 2048, 228 * _KIB, 227 * _KIB),
    (10, 0): Core(128, 2048, 228 * _KIB, 227 * _KIB),
    (12, 0): Core(128, 1536, 128 * _KIB, 99 * _KIB),
}


def describe_gpus(name: str) -> Topology:
    """The GPUs `CARD[:NUMBER]` of one machine, for the compiler only. Raises PlanningError."""
    card, colon, number = name.casefold().partition(":")
    if card not in GPUS:
        raise PlanningError(
            f"no '{card}' is known here. GPUs: {', '.join(GPUS)}; TPUs: {', '.join(TPU_VERSIONS)}; "
            f"{_EXAMPLES}"
        )
    if colon and (not re.fullmatch(r"\d{1,3}", number) or not 1 <= int(number) <= _MOST):
        raise PlanningError(
            f"'{name}': write the card and how many of one machine, 1 to {_MOST}; {_EXAMPLES}"
        )
    if importlib.util.find_spec(PLUGIN) is None:
        raise PlanningError(f"the GPU compiler is not installed here: {install('cuda')}")
    gpu = GPUS[card]
    chip = chip_of(gpu.kind)
    assert chip is not None, gpu.kind
    count = int(number or 1)
    try:
        with captured():
            description = topologies.get_topology_desc(
                platform="cuda",
                target_config=target_config(gpu, chip),
                topology=f"1x1x{count}",  # processes' groups x processes x devices of each
            )
    except (JaxRuntimeError, RuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise PlanningError(
            f"JAX {jax.__version__} can't compile for a GPU that isn't here: {reason}. Tested with "
            "JAX 0.12 and its CUDA 13 plugin, on Python 3.12"
        ) from error
    devices: tuple[Any, ...] = tuple(description.devices)
    return Topology(
        name,
        slices=1,
        sides=(count,),
        chip=chip,
        devices=devices,
        platform="gpu",
        compiler=f"XLA of jaxlib {jax.lib.__version__}, "
        f"CUDA plugin {importlib.metadata.version('jax-cuda13-plugin')}",
        memory_bytes=int(memory_share() * chip.hbm_bytes),
    )


def target_config(gpu: Gpu, chip: Chip) -> str:
    """XLA's `GpuTargetConfigProto`, as text."""
    core = _CORES[gpu.capability]
    major, minor = gpu.capability
    dnn_major, dnn_minor = _DNN
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: {48 * _KIB}
  shared_memory_per_block_optin: {core.block_shared_memory}
  shared_memory_per_core: {core.shared_memory}
  threads_per_core_limit: {core.threads}
  core_count: {gpu.cores}
  fpus_per_core: {core.float32_units}
  block_dim_limit_x: {2**31 - 1}
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {round(chip.hbm_bandwidth)}
  l2_cache_size: {gpu.l2_bytes}
  clock_rate_ghz: {chip.clock / 1e9}
  device_memory_size: {chip.hbm_bytes}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: {dnn_major} minor: {dnn_minor} }}
runtime_version {{ major: 13 minor: 0 patch: 0 }}
device_description_str: "{gpu.kind}"
"""


def memory_share() -> float:
    """How much of a GPU's memory JAX takes, as this process's environment sets it."""
    for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        if text := os.environ.get(name, ""):
            try:
                share = float(text)
            except ValueError:
                share = 0.0
            if not 0 < share <= 1:
                raise PlanningError(f"{name}={text}: it must be a number above 0, at most 1")
            return share
    return 0.75
