"""Without the compiler: what is said of wrong arguments, topologies, rows and memory."""

import dataclasses
import importlib.util
import os
from types import SimpleNamespace
from typing import Any

import pytest

from flaxformer_mt.config import freeze, read_config
from flaxformer_mt.data.plan import PlanError, Shape
from flaxformer_mt.parallel.chips import chip_of
from flaxformer_mt.planning import PlanningError, names_a_tpu
from flaxformer_mt.planning.compiler import Memory, TooLarge, captured, too_large
from flaxformer_mt.planning.costs import Compute, Cost
from flaxformer_mt.planning.describe import describe, name_of
from flaxformer_mt.planning.fit import largest_shape, shape_of
from flaxformer_mt.planning.gpus import GPUS, memory_share, target_config
from flaxformer_mt.planning.plan import DecodePlan, plan_decoding
from flaxformer_mt.planning.report import decoding_as_text, programs_as_text
from flaxformer_mt.planning.searches import SearchProgram


def test_a_search_that_does_not_fit_and_a_source_too_long_are_told():
    plan = DecodePlan(
        **{
            "config": "c",
            "topology": "v5e:1x1",
            "platform": "tpu",
            "chip": "TPU v5e",
            "rows": 8,
            "src_length": 16,
        },
        **{"beam_size": 4, "max_length": 66, "compile_seconds": 1.0, "hbm_bytes": 2**30},
        **{"memory": None, "refused": TooLarge(needed=2**31, available=2**30, message="")},
        **{"replications": (), "recomputed": 0, "compute": None, "step": None, "seconds": 0.0},
        **{"seconds_per_token": 0.0, "compiler": "libtpu 1"},
    )
    text = decoding_as_text(plan)
    assert "compiled by libtpu 1 in 1 s" in text
    assert "1.00 GiB too much. Lower decoding.batch_tokens or decoding.beam_size" in text
    config = read_config("quickstart", ["model.max_length=128"])
    topology: Any = None
    with pytest.raises(PlanningError, match="a sentence of 129 tokens"):
        plan_decoding(config, topology, lengths=(129, 9), src_vocab_size=9, tgt_vocab_size=9)


def test_a_search_s_programs_are_told_with_their_steps():
    work = Cost("all", count=3, seconds=0.0012, bytes=600)
    step = Compute(None, 0.0012, (work,), (work,), (), guessed_loops=True)
    begin = SearchProgram(
        name="begin", rows=8, src_length=64, room=64, compile_seconds=2.0, fits=True, step=None,
        least_bytes=400,
    )  # fmt: skip
    loop = dataclasses.replace(begin, name="advance", room=114, step=step)
    too_large = dataclasses.replace(loop, fits=False, step=None)
    lines = programs_as_text([begin, loop, too_large]).splitlines()
    assert lines[0] == "3 programs for a file of any lengths, compiled here in 6 s"
    assert lines[2].split() == ["begin", "8", "x", "64", "64", "2.0", "s"]
    assert lines[3].split() == ["advance", "8", "x", "64", "114", "2.0", "s", "1.20", "ms", "1.5"]
    assert lines[4].endswith("too large")
    assert "bytes" in lines[1]
    cycles = dataclasses.replace(step, operations=(dataclasses.replace(work, bytes=0),))
    of_tpu = programs_as_text([begin, dataclasses.replace(loop, step=cycles)])
    assert "bytes" not in of_tpu.lower()


@pytest.mark.parametrize(
    ("name", "slices", "message"),
    [
        ("v5e:2,4", 1, "is not a topology: write VERSION:SIDES, for example v5e:2x4"),
        ("v9:2x2", 1, "'v9:2x2': TPUs that can be planned for are v2, v3, v4, v5e"),
        ("v5e:2x4", 0, "must be at least 1"),
        ("h1000", 1, "no 'h1000' is known here. GPUs: a10, a100, .* TPUs: v2, v3"),
        ("h100:9", 1, "'h100:9': write the card and how many of one machine, 1 to 8"),
        ("h100:", 1, "write the card and how many"),
        ("h100:2x4", 1, "write the card and how many"),
        ("h100", 2, "--slices is for TPUs"),
        ("v100", 1, "no 'v100' is known here. GPUs: a10, a100"),
        ("v5e", 1, "no 'v5e' is known here. GPUs: .* TPUs: v2, .* or v5e:2x4"),
    ],
)
def test_names(name, slices, message):
    with pytest.raises(PlanningError, match=message):
        describe(name, slices)


@pytest.mark.parametrize(("name", "extra"), [("v5e:2x4", "tpu"), ("h100", "cuda")])
def test_without_the_compiler(monkeypatch, name, extra):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PlanningError, match=rf"pip install 'flaxformer-mt\[{extra}\]'"):
        describe(name)


def test_which_compiler_a_name_asks_for():
    assert all(
        names_a_tpu(name) for name in ("v5e:2x4", "v5e:2,4", "v9:1", "tpu7x:2x2x1", "V4:2x2x1")
    )
    assert not any(
        names_a_tpu(name)
        for name in ("h100", "a100:8", "l4", "rtx-4090", "b200", "v100", "v100:8", "t4")
    )


def test_every_card_has_its_peaks_and_a_description():
    for card, gpu in GPUS.items():
        chip = chip_of(gpu.kind)
        assert chip is not None and chip.link in ("NVLink", "PCIe"), card
        assert 20 * 2**30 < chip.hbm_bytes < 200 * 2**30, card
        assert 0.2e12 < chip.hbm_bandwidth < 10e12, card
        assert f"core_count: {gpu.cores}\n" in target_config(gpu, chip), card
        # A core's multiply-adds of bfloat16 a cycle. Tensor cores boost to somewhat less than the
        # clock; consumer cards sum in float32 at half the rate.
        per_core = chip.bf16_flops / (2 * gpu.cores * chip.clock)
        halved = {"rtx-3090", "rtx-4090", "rtx-5090"}
        full = {8: 1024 if gpu.capability[1] == 0 else 512, 9: 2048, 10: 4096, 12: 512}
        expected = full[gpu.capability[0]] / (2 if card in halved else 1)
        assert per_core == pytest.approx(expected, rel=0.08), card


def test_the_share_of_memory_that_jax_takes(monkeypatch):
    monkeypatch.delenv("XLA_CLIENT_MEM_FRACTION", raising=False)
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    assert memory_share() == 0.75
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".9")
    assert memory_share() == 0.9
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "all")
    with pytest.raises(
        PlanningError, match="XLA_CLIENT_MEM_FRACTION=all: it must be a number above 0"
    ):
        memory_share()


def config_of(**batch):
    return freeze({"data": {"batch": batch}, "model": {"max_length": 256}}, "a test")


def test_shapes_without_data():
    config = config_of(tokens=25_000)
    assert largest_shape(config) == Shape(96, 256, 256)  # of 97 rows a multiple of 8
    assert shape_of(config, 32, 64) == Shape(384, 32, 64)
    shapes = (Shape(500, 10, 12), Shape(96, 250, 256), Shape(100, 240, 240))
    assert largest_shape(config, shapes) == shapes[1]
    packed = config_of(form="pack", tokens=8192, src_length=512, tgt_length=480)
    assert largest_shape(packed) == Shape(16, 512, 480)  # the model's length is a sentence's


@pytest.mark.parametrize(
    ("batch", "lengths", "message"),
    [
        ({"form": "pack"}, None, "set data.batch.src_length"),
        ({}, (64, 257), "a sentence of 257 tokens is longer than 'model.max_l"),
        ({"tokens": 256}, None, "raise it, or lower data.filter.max_length"),
    ],
)
def test_rows_that_cannot_be(batch, lengths, message):
    config = config_of(**batch)
    with pytest.raises((PlanningError, PlanError), match=message):
        shape_of(config, *lengths) if lengths else largest_shape(config)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (36.50G) exceeds available HBM (15.75G).\n\nmore",
            (36.5, 15.75),
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            "space hbm. Used 36.50G of 15.75G hbm. Exceeded hbm capacity by 20.75G.",
            (36.5, 15.75),
        ),
        ("RESOURCE_EXHAUSTED: too many registers", None),
        ("INTERNAL: Used 36.50G of 15.75G hbm", None),
    ],
)
def test_sizes_are_read(text, sizes):
    sizes_read = too_large(RuntimeError(text))
    assert (sizes_read and (sizes_read.needed / 2**30, sizes_read.available / 2**30)) == sizes
    assert sizes_read is None or sizes_read.message == text.splitlines()[0]


def test_needed():
    sizes = {"arguments": 100, "outputs": 90, "aliased": 80, "temporaries": 50, "code": 7}
    assert Memory(**sizes, peak=0).needed(limit=1000) == 100 + 90 - 80 + 50 + 7
    assert Memory(**sizes, peak=500).needed(limit=1000) == 507
    # Pieces that are more than there is share places.
    sizes["temporaries"] = 500
    assert Memory(**sizes, peak=300).needed(limit=617) == 617
    assert Memory(**sizes, peak=300).needed(limit=616) == 307


def test_the_compilers_complaints_are_kept(capfd):
    prefix = b"W1121 17:33:31.897443   11944 spmd_partitioner.cc:654] "
    with captured() as log:
        os.write(2, prefix + b"[SPMD] Involuntary full rematerialization. The compiler\n")
        os.write(2, b"W2 Collective matmul V1 is enabled.\n")
    os.write(2, b"afterwards\n")
    assert log == ["[SPMD] Involuntary full rematerialization. The compiler"]
    assert capfd.readouterr().err == "afterwards\n"


def of_kind(kind: str, platform: str, **more: object) -> SimpleNamespace:
    return SimpleNamespace(device_kind=kind, platform=platform, **more)


def test_devices_that_are_here_are_called_as_plan_calls_them():
    """TPUs of a part of a slice, unknown kinds and CPUs have no name."""
    chips = [of_kind("TPU v5 lite", "tpu", coords=(x, y, 0)) for y in range(4) for x in range(2)]
    assert name_of(chips) == ("v5e:2x4", 1)
    assert name_of(chips[:-1]) is None
    assert name_of([of_kind("TPU v99", "tpu", coords=(0, 0, 0))]) is None
    cards = [of_kind("NVIDIA H200", "gpu", process_index=0) for _ in range(8)]
    assert name_of(cards) == ("h200:8", 1)
    assert name_of([*cards, of_kind("NVIDIA H200", "gpu", process_index=1)]) is None
    assert name_of([of_kind("cpu", "cpu")]) is None
