"""How fast a device multiplies, and how fast data gets to it."""

from __future__ import annotations

from collections.abc import Iterator

import jax

from flaxformer_mt.diagnosis.finding import Finding
from flaxformer_mt.parallel.chips import chip_of, product_flops, upload_bandwidth

_EXPECTED = 0.5  # of its peak, for one large product: devices in order reach 0.7 and more
_SLOW_UPLOAD = 1e9  # bytes a second; a batch has some hundred kilobytes


def check_speed(device: jax.Device) -> Iterator[Finding]:
    if device.platform == "cpu":
        flops = product_flops(device, dtype="float32", size=1024, seconds=0.5)
        values: dict[str, float | str | None] = {"flops": flops}
        yield Finding("product", "ok", f"float32 {flops / 1e9:,.0f} GFLOP/s", values=values)
        return  # nothing is far from its memory
    yield _against_peak(device)
    rate = upload_bandwidth(device)
    text, values = f"{rate / 1e9:.1f} GB/s from the host", {"bytes_per_second": rate}
    if rate < _SLOW_UPLOAD:
        yield Finding("upload", "warn", text, "batches may arrive late: watch `data wait`", values)
    else:
        yield Finding("upload", "ok", text, values=values)


def _against_peak(device: jax.Device) -> Finding:
    chip = chip_of(device.device_kind)
    dtype = "bfloat16" if chip is None else chip.half
    flops = product_flops(device, dtype=dtype, size=8192, seconds=1.0, times=8)
    text = f"{dtype} {flops / 1e12:,.0f} TFLOP/s"
    if chip is None:
        return Finding("product", "ok", text, values={"flops": flops})
    share = flops / chip.bf16_flops
    text += f", {100 * share:.0f}% of the peak of {chip.name}"
    values = {"flops": flops, "peak": chip.bf16_flops}
    if share < _EXPECTED:
        advice = "something else uses the device, or it is throttled: power and temperature"
        return Finding("product", "warn", text, advice, values)
    return Finding("product", "ok", text, values=values)
