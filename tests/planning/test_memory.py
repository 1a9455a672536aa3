"""What a failed compilation says about memory."""

from __future__ import annotations

import os

import pytest

from flaxformer_mt.planning.compile import Memory, captured, too_large

GIB = 2**30


@pytest.mark.parametrize(
    "text",
    [
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (36.50G) exceeds available HBM (15.75G).\n\nmore",
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space "
        "hbm. Used 36.50G of 15.75G hbm. Exceeded hbm capacity by 20.75G.",
    ],
)
def test_sizes_are_read(text):
    found = too_large(RuntimeError(text))
    assert found.needed == round(36.5 * GIB) and found.available == round(15.75 * GIB)
    assert found.message.startswith("RESOURCE_EXHAUSTED") and "\n" not in found.message
    assert too_large(RuntimeError(text.replace("RESOURCE_EXHAUSTED", "INTERNAL"))) is None
    assert too_large(RuntimeError("RESOURCE_EXHAUSTED: too many registers")) is None


def test_needed():
    sizes = {"arguments": 100, "outputs": 90, "aliased": 80, "temporaries": 50, "code": 7}
    assert Memory(**sizes, peak=0).needed(limit=1000) == 100 + 90 - 80 + 50 + 7
    assert Memory(**sizes, peak=500).needed(limit=1000) == 507
    # Pieces that are more than there is share places.
    sizes["temporaries"] = 500
    assert Memory(**sizes, peak=300).needed(limit=617) == 617
    assert Memory(**sizes, peak=300).needed(limit=616) == 307


def test_the_compilers_complaints_are_kept(capfd):
    with captured() as log:
        os.write(
            2,
            b"W1121 17:33:31.897443   11944 spmd_partitioner.cc:654] "
            b"[SPMD] Involuntary full rematerialization. The compiler cannot go\n",
        )
        os.write(2, b"W2 Collective matmul V1 is enabled.\n")
    os.write(2, b"afterwards\n")
    assert log == ["[SPMD] Involuntary full rematerialization. The compiler cannot go"]
    assert capfd.readouterr().err == "afterwards\n"
