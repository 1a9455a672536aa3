"""What a failed compilation says about memory, and what a successful one needs."""

from __future__ import annotations

import os

import pytest

from flaxformer_mt.planning.compile import Memory, captured, too_large


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
    found = too_large(RuntimeError(text))
    assert (found and (found.needed / 2**30, found.available / 2**30)) == sizes
    assert found is None or found.message == text.splitlines()[0]


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
