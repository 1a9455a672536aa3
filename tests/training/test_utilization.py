"""MFU by hand, and the peak that it is a share of."""

from __future__ import annotations

import dataclasses

import jax
import pytest

from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.training import instruments
from flaxformer_mt.training.instruments import Peak, Utilization, find_peak
from flaxformer_mt.training.telemetry import Window
from tests.training.examples import VOCAB, tiny
from tests.training.test_window import metrics


@dataclasses.dataclass
class Device:
    device_kind: str
    platform: str
    process_index: int = 0


@pytest.mark.parametrize(
    ("kind", "setting", "peak", "said"),
    [
        ("TPU v5 lite", 0.0, Peak(8 * 197e12, "TPU v5e"), "197 TFLOP/s a device"),
        ("TPU v5 lite", 3.5, Peak(8 * 3.5e12, "training.chip_tflops"), ""),
        ("Nonesuch 9", 0.0, None, "of 'Nonesuch 9' is unknown; set training.chip_tflops"),
    ],
)
def test_a_known_chip_has_its_peak_by_name_and_the_setting_wins(kind, setting, peak, said):
    found, line = find_peak([Device(kind, "tpu")] * 8, setting, "float32")
    assert found == peak and said in line


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cpu_is_measured_in_the_type_that_the_model_multiplies_in(monkeypatch, dtype):
    measure, measured = instruments.product_flops, []
    monkeypatch.setattr(
        instruments,
        "product_flops",
        lambda *given, **how: measured.append(how["dtype"]) or measure(*given, **how),
    )
    peak, line = find_peak(jax.devices(), 0.0, dtype)
    assert peak is not None and measured == [dtype]
    assert 1e8 < peak.flops < 1e14
    assert f"GFLOP/s, a {dtype} matrix product measured now" in line
    assert peak.source == f"measured {dtype} product"


def test_every_process_brings_a_cpu(monkeypatch):
    monkeypatch.setattr(instruments, "product_flops", lambda *_, **__: 5e9)
    cpus = [Device("cpu", "cpu", process) for process in (0, 0, 1, 1)]
    peak, line = find_peak(cpus, 0.0, "float32")
    assert peak is not None and peak.flops == 1e10
    assert "x 2 processes" in line


def test_share_by_hand():
    model = tiny().model
    flops = training_flops(model, VOCAB, src_tokens=40, tgt_tokens=48, src_keys=5, tgt_keys=6)
    found = Utilization(model, VOCAB, Peak(flops, "a test"))
    share = found.share(src_tokens=40, tgt_tokens=48, sentences=8, seconds=4)
    assert share == pytest.approx(0.25)


def test_padding_is_no_work():
    model = tiny().model
    reports = []
    for positions in (16, 1600):
        window = Window(utilization=Utilization(model, VOCAB, Peak(1.0, "a test")))
        window.add(metrics(1.0, 1.0, 8, 8), positions=positions)
        window._start = 0.0  # as long ago as the clock goes
        reports.append(window.report(epoch=0, steps_left=0))
    assert reports[0]["mfu"] == pytest.approx(reports[1]["mfu"], rel=1e-3)
