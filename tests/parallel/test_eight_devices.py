"""A training step on a mesh of eight devices is the step on one, with its arrays really split."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MESHES = ("8x1x1", "1x8x1", "2x2x2", "1x2x4")  # data x fsdp x tensor


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        # Five programs are compiled and run for three steps: nothing to optimise them for.
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    command = [sys.executable, "-W", "error", "-m", "tests.parallel.on_eight_devices", *MESHES]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The partitioner warns where it has to replicate what should be split.
    assert "full rematerialization" not in done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("mesh", MESHES)
def test_equals_a_single_device(results, mesh):
    """Losses, parameters, moments and average after three steps, dropout and micro-batches on."""
    found, single = results["meshes"][mesh], results["single"]
    assert found["losses"] == pytest.approx(single["losses"], abs=1e-5)
    assert found["valid"] == pytest.approx(single["valid"], rel=1e-5)
    assert found["largest_difference"] < 1e-5
    assert len(set(single["losses"])) == 3


@pytest.mark.parametrize("mesh", MESHES)
def test_arrays_are_split_as_the_rules_say(results, mesh):
    data, fsdp, tensor = (int(size) for size in mesh.split("x"))
    shards = results["meshes"][mesh]["shards"]
    # embed over fsdp; vocab, heads and mlp over tensor. Moments and average have one side more,
    # the widest that these leave, split over data.
    for ending, wanted, widest in (
        ("embedding/shared", ([16, 16], [16 // tensor, 16 // fsdp]), {"8x1x1": 0}),
        (
            "self_attention/query",
            ([16, 8, 4], [16 // fsdp, 8 // tensor, 4]),
            {"8x1x1": 0, "2x2x2": 2},
        ),
        (
            "self_attention/out",
            ([8, 4, 16], [8 // tensor, 4, 16 // fsdp]),
            {"8x1x1": 2, "2x2x2": 1},
        ),
        ("feed_forward/w_in", ([16, 32], [16 // fsdp, 32 // tensor]), {"8x1x1": 1}),
        ("feed_forward/w_out", ([32, 16], [32 // tensor, 16 // fsdp]), {"8x1x1": 0}),
    ):
        found = {name: shapes for name, shapes in shards.items() if name.endswith(ending)}
        # Parameters, two moments and the moving average.
        assert len(found) >= 4, ending
        whole, part = wanted
        spread = list(part)
        if mesh in widest:
            spread[widest[mesh]] //= data
        for name, shapes in found.items():
            assert shapes == [whole, part if name.startswith("params/") else spread], name


@pytest.mark.parametrize("mesh", MESHES)
def test_little_is_left_whole(results, mesh):
    """Biases and norms may be; of parameters a device has near one in fsdp x tensor."""
    _, fsdp, tensor = (int(size) for size in mesh.split("x"))
    shards = results["meshes"][mesh]["shards"]

    def share(start: str) -> float:
        shapes = [pair for name, pair in shards.items() if name.startswith(start)]
        whole, part = (sum(math.prod(pair[which]) for pair in shapes) for which in (0, 1))
        return part / whole

    assert share("params/") <= 1.15 / (fsdp * tensor) + 0.02
    if mesh == "8x1x1":
        assert share("opt_state/") <= 1.15 / 8 + 0.02


@pytest.mark.parametrize("mesh", MESHES)
def test_the_state_stays_where_it_was_planned(results, mesh):
    """Or else every step would move it, and be compiled anew."""
    assert results["meshes"][mesh]["as_planned"]
    assert results["meshes"][mesh]["compilations"] == 1


def test_rows_that_do_not_divide_are_refused(results):
    assert results["rows"] == (
        "'data.batch.multiple' = 4 must be divisible by 16: mesh.data x mesh.fsdp = 8 devices "
        "split the rows of each of training.optimizer.accumulation = 2 micro-batches"
    )
    assert results["micro_rows"].startswith("'data.batch.multiple' = 8 must be divisible by 16")


def test_a_vocabulary_that_does_not_divide_is_refused(results):
    assert "embedding/shared" in results["vocab"]
    assert results["vocab"].endswith(
        "[17, 16] cannot be split evenly over tensor = 2: choose a size that 2 divides for its "
        "axis of 17 (model.vocab_multiple = 2 for that of a vocabulary), or another mesh"
    )


def test_a_padded_vocabulary_divides(results):
    assert results["padded"] == [16, 16]


def test_a_mesh_of_other_than_all_devices_is_refused(results):
    assert results["too_many"].startswith("'mesh': data 2 x fsdp 1 x tensor 2 does not make 8")
