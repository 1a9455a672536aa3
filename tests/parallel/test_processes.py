"""Finding each other, sharing a batch's rows, and what a process that is alone is spared."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from flaxformer_mt.cli.processes import add_processes, cluster
from flaxformer_mt.parallel import ALONE, Cluster, batch_share, joined

ROOT = Path(__file__).parents[2]

# Recognised by JAX as the task of a Slurm job.
SLURM = """
    import jax, numpy as np, sys
    from flaxformer_mt.config import MeshConfig
    from flaxformer_mt.parallel import (
        batch_share, batch_sharding, joined, local_mesh, make_mesh, place_batch, place_whole,
        whole_on,
    )
    rows = np.arange(8, dtype=np.int32).reshape(8, 1)
    with joined(None, heartbeat=5) as processes:
        found = [processes.number, processes.count, jax.device_count(), jax.process_index()]
        one, two, three, four = jax.devices()
        for sizes, devices in (
            ((4, 1, 1), None), ((1, 4, 1), None), ((2, 1, 2), None), ((1, 1, 4), None),
            ((4, 1, 1), [one, three, two, four]), ((2, 1, 2), [one, three, two, four]),
        ):
            mesh = make_mesh(MeshConfig(**dict(zip(("data", "fsdp", "tensor"), sizes))), devices)
            numbers, count = batch_share(mesh)
            found.append((numbers, count))
            mine = np.concatenate([np.split(rows, count)[number] for number in numbers])
            placed = place_batch({"rows": mine}, mesh)
            for shard in placed["rows"].addressable_shards:
                assert (np.asarray(shard.data) == rows[shard.index]).all()
            assert placed["rows"].sharding == batch_sharding(mesh)
            whole = whole_on(placed, local_mesh())["rows"]
            assert len(whole.sharding.device_set) == 2 and (np.asarray(whole) == rows).all()
            again = place_whole(rows, batch_sharding(mesh))
            assert (np.asarray(whole_on(again, local_mesh())) == rows).all()
        print(*found, sep="; ", flush=True)
        if processes.number == 1:
            raise LookupError("only here")
        processes.gather([])
"""


@pytest.fixture(scope="module")
def tasks() -> list[subprocess.CompletedProcess[str]]:
    """Two tasks with two devices each; the second fails, while the first waits for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = []
    for number in range(2):
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
            "JAX_COORDINATOR_PORT": str(port),
            "SLURM_JOB_ID": "1",
            "SLURM_STEP_NODELIST": "127.0.0.1",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(number),
        }
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(SLURM)]
        running.append(
            subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        said = [task.communicate(timeout=120) for task in running]
    finally:
        for task in running:
            task.kill()
    return [
        subprocess.CompletedProcess(task.args, task.returncode, *texts)
        for task, texts in zip(running, said, strict=True)
    ]


def test_tasks_of_a_job_find_each_other_and_share_rows(tasks):
    """Data and fsdp split a batch's rows; tensor parallelism over both leaves all rows to each."""
    for number, task in enumerate(tasks):
        line = next(line for line in task.stdout.splitlines() if "[Gloo]" not in line)
        halves = ((2 * number, 2 * number + 1), 4)
        mixed = ((number, number + 2), 4)
        shares = (halves, halves, ((number,), 2), ((0,), 1), mixed, ((0, 1), 2))
        assert line == "; ".join(map(str, (number, 2, 4, number, *shares))), task.stderr


def test_one_that_fails_takes_the_others_along(tasks):
    assert tasks[1].returncode == 1
    assert "process 1 of 2 has failed: LookupError" in tasks[1].stderr
    assert tasks[0].returncode not in (0, 75)


def mesh_of(processes: list[int], data: int, fsdp: int, tensor: int) -> Any:
    """Devices of these processes, in the mesh's order."""
    devices = np.empty(len(processes), object)
    devices[:] = [SimpleNamespace(process_index=process) for process in processes]
    return SimpleNamespace(
        devices=devices.reshape(data, fsdp, tensor),
        shape={"data": data, "fsdp": fsdp, "tensor": tensor},
        is_multi_process=True,
    )


@pytest.mark.parametrize(
    ("processes", "sizes", "parts", "count"),
    [
        ([0, 0, 1, 1, 2, 2, 3, 3], (8, 1, 1), [(0, 1), (2, 3), (4, 5), (6, 7)], 8),
        ([0, 0, 1, 1, 2, 2, 3, 3], (2, 2, 2), [(0,), (1,), (2,), (3,)], 4),
        # A row's devices are in two processes: these have the same rows.
        ([0, 0, 1, 1, 2, 2, 3, 3], (2, 1, 4), [(0,), (0,), (1,), (1,)], 2),
        ([0, 0, 1, 1, 2, 2, 3, 3], (1, 1, 8), [(0,)] * 4, 1),
        # As on a TPU's torus, where neighbours in the mesh belong to different hosts.
        ([2, 2, 0, 0, 3, 3, 1, 1], (8, 1, 1), [(2, 3), (6, 7), (0, 1), (4, 5)], 8),
        ([0, 1, 0, 1], (4, 1, 1), [(0, 2), (1, 3)], 4),
        ([0, 1, 1, 0], (4, 1, 1), [(0, 3), (1, 2)], 4),
        ([0, 0, 0, 1], (4, 1, 1), [(0, 1, 2), (3,)], 4),
    ],
)
def test_shares_follow_the_order_of_devices(monkeypatch, processes, sizes, parts, count):
    found = []
    for number in range(max(processes) + 1):
        monkeypatch.setattr(jax, "process_index", lambda number=number: number)
        found.append(batch_share(mesh_of(processes, *sizes)))
    assert found == [(part, count) for part in parts]


def test_a_process_alone_starts_nothing(monkeypatch):
    monkeypatch.setattr(jax.distributed, "initialize", _recognises_nothing)
    with joined(None) as processes:
        assert processes is ALONE and processes.is_first
    value = object()
    assert ALONE.first(lambda: value) is value
    assert ALONE.gather(["a", "b"]) == [["a", "b"]]
    assert ALONE.ask(7) == 7
    with pytest.raises(LookupError), joined(None):
        raise LookupError


@pytest.mark.parametrize("name", ["SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"])
def test_a_job_of_one_task_is_alone(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(jax.distributed, "initialize", pytest.fail)
    with joined(None) as processes:
        assert processes is ALONE


def _recognises_nothing(*_: Any, **__: Any) -> None:
    raise ValueError("coordinator_address should be defined.")


def parsed(*arguments: str) -> Cluster | None:
    parser = argparse.ArgumentParser()
    add_processes(parser)
    return cluster(parser.parse_args(arguments), parser)


def test_flags_say_who_is_who():
    flags = ("--coordinator", "host:1234", "--num-processes", "4", "--process-id", "3")
    assert parsed(*flags) == Cluster("host:1234", 4, 3)
    assert parsed() is None
    assert parsed("--heartbeat", "5") is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--coordinator host:1", "go together"),
        ("--num-processes 2 --process-id 0", "go together"),
        ("--coordinator host --num-processes 2 --process-id 0", "write HOST:PORT"),
        ("--coordinator host:1 --num-processes 2 --process-id 2", "must lie between"),
        ("--heartbeat 0", "at least 1 second"),
    ],
)
def test_wrong_flags_are_named(capsys, flags, message):
    with pytest.raises(SystemExit) as stop:
        parsed(*flags.split())
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
