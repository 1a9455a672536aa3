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


@pytest.fixture(
    scope="module", params=["2x2x2", pytest.param("8x1x1 1x8x1 1x2x4", marks=pytest.mark.extended)]
)
def results(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What came of each mesh, data x fsdp x tensor, and of a single device."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        # Programs that are run for three steps: nothing to optimise them for.
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    command = [sys.executable, "-W", "error", "-m", "tests.parallel.on_eight_devices"]
    done = subprocess.run(
        [*command, *request.param.split()],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    # The partitioner warns where it has to replicate what should be split.
    assert "full rematerialization" not in done.stderr
    return json.loads(done.stdout)


def test_equals_a_single_device(results):
    """Losses, parameters, moments and average after three steps, dropout and micro-batches on."""
    single = results["single"]
    assert len(set(single["losses"])) == 3
    for mesh, found in results["meshes"].items():
        assert found["losses"] == pytest.approx(single["losses"], abs=1e-5), mesh
        assert found["valid"] == pytest.approx(single["valid"], rel=1e-5), mesh
        assert found["largest_difference"] < 1e-5, mesh
        # It stays where it was planned: or else every step would move it, and be compiled anew.
        assert found["as_planned"] and found["compilations"] == 1, mesh


def test_arrays_are_split_as_the_rules_say(results):
    for mesh, found in results["meshes"].items():
        data, fsdp, tensor = (int(size) for size in mesh.split("x"))
        shards = found["shards"]
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
            held = {name: shapes for name, shapes in shards.items() if name.endswith(ending)}
            # Parameters, two moments and the moving average.
            assert len(held) >= 4, ending
            whole, part = wanted
            spread = list(part)
            if mesh in widest:
                spread[widest[mesh]] //= data
            for name, shapes in held.items():
                assert shapes == [whole, part if name.startswith("params/") else spread], name


def test_little_is_left_whole(results):
    """Biases and norms may be; of parameters a device has near one in fsdp x tensor."""
    for mesh, found in results["meshes"].items():
        _, fsdp, tensor = (int(size) for size in mesh.split("x"))

        def share(start: str) -> float:
            of_these = [pair for name, pair in found["shards"].items() if name.startswith(start)]  # noqa: B023
            whole, part = (sum(math.prod(pair[which]) for pair in of_these) for which in (0, 1))
            return part / whole

        assert share("params/") <= 1.15 / (fsdp * tensor) + 0.02
        if mesh == "8x1x1":
            assert share("opt_state/") <= 1.15 / 8 + 0.02


def test_what_a_mesh_cannot_split_is_refused(results):
    assert results["rows"] == (
        "'data.batch.multiple' = 4 must be divisible by 16: mesh.data x mesh.fsdp = 8 devices "
        "split the rows of each of training.optimizer.accumulation = 2 micro-batches"
    )
    assert results["micro_rows"].startswith("'data.batch.multiple' = 8 must be divisible by 16")
    assert "embedding/shared" in results["vocab"]
    assert results["vocab"].endswith(
        "[17, 16] cannot be split evenly over tensor = 2: choose a size that 2 divides for its "
        "axis of 17 (model.vocab_multiple = 2 for that of a vocabulary), or another mesh"
    )
    assert results["padded"] == [16, 16]
    assert results["too_many"].startswith("'mesh': data 2 x fsdp 1 x tensor 2 does not make 8")
