"""MFU: the model's useful FLOPs as a share of what the devices could do at best."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import jax

from flaxformer_mt.config import ModelConfig
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.parallel.chips import chip_of, product_flops

_CPU_SIZE = 1024  # a square matrix product that keeps all cores of a usual machine busy
_CPU_SECONDS = 0.15


@dataclasses.dataclass(frozen=True)
class Peak:
    """FLOP/s of all devices together at best, and where that figure comes from."""

    flops: float
    source: str


def find_peak(
    devices: Sequence[jax.Device], chip_tflops: float, dtype: str
) -> tuple[Peak | None, str]:
    """The peak that MFU is a share of, and a line about it for people; None if it is unknown.

    `chip_tflops`, if not 0, is a device's. Otherwise an accelerator's is the bfloat16 peak of the
    chip table, whatever type the model computes in; that of CPUs is a product of `dtype`, the
    model's, measured now in about half a second, of which every process contributes one.
    """
    kind, count = devices[0].device_kind, len(devices)
    if chip_tflops:
        peak = Peak(chip_tflops * 1e12 * count, "training.chip_tflops")
        return peak, f"MFU: of {chip_tflops:g} TFLOP/s a device (training.chip_tflops) x {count}"
    if devices[0].platform == "cpu":
        begin = time.perf_counter()
        here = jax.local_devices()[0]
        processes = len({device.process_index for device in devices})
        measured = product_flops(here, dtype=dtype, size=_CPU_SIZE, seconds=_CPU_SECONDS)
        line = (
            f"MFU: of {measured / 1e9:,.0f} GFLOP/s, a {dtype} matrix product measured now in "
            f"{time.perf_counter() - begin:.1f} s"
        )
        if processes > 1:
            line += f", x {processes} processes"
        return Peak(measured * processes, f"measured {dtype} product"), line
    chip = chip_of(kind)
    if chip is None:
        return None, (
            f"MFU: not reported: the peak of {kind!r} is unknown; set training.chip_tflops to a "
            "device's dense bfloat16 TFLOP/s"
        )
    peak = Peak(chip.bf16_flops * count, chip.name)
    return peak, (
        f"MFU: of {chip.bf16_flops / 1e12:,.0f} TFLOP/s a device ({chip.name}, {chip.half}) x "
        f"{count}"
    )


@dataclasses.dataclass(frozen=True)
class Utilization:
    """Turns counts of tokens and seconds into a share of `peak`."""

    model: ModelConfig
    tgt_vocab_size: int
    peak: Peak

    def share(
        self, *, src_tokens: float, tgt_tokens: float, sentences: float, seconds: float
    ) -> float:
        """MFU, forward and backward pass, of tokens that are no padding.

        Projections, feed-forward and softmax are counted token by token. In attention a token is
        taken to see as many as a sentence has in the mean: a little less than what sentences of
        uneven lengths need, some thousandths of the whole. Of frozen parameters it counts the
        gradients, too, that nobody computes.
        """
        flops = training_flops(
            self.model,
            self.tgt_vocab_size,
            src_tokens=src_tokens,
            tgt_tokens=tgt_tokens,
            src_keys=src_tokens / sentences,
            tgt_keys=tgt_tokens / sentences,
        )
        return flops / (seconds * self.peak.flops)
