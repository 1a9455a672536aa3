"""Finding each other, sharing a batch's rows, and what a process that is alone is spared."""

import argparse
import socket
import subprocess
import sys
import textwrap
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from flaxformer_mt.cli.processes import add_processes, cluster
from flaxformer_mt.parallel import ALONE, Cluster, ProcessError, batch_share, joined
from tests.conftest import environment

# Recognised by JAX as the task of a Slurm job.
SLURM = """
    from types import SimpleNamespace
    import jax, numpy as np
    from flaxformer_mt.config import MeshConfig
    from flaxformer_mt.diagnosis import step
    from flaxformer_mt.parallel import (
        batch_sharding, joined, local_mesh, make_mesh, place_batch, place_whole, whole_on
    )
    rows = np.arange(8, dtype=np.int32).reshape(8, 1)
    with joined(None, heartbeat=5) as processes:
        found = [processes.number, processes.count, jax.device_count(), jax.process_index()]
        mesh = make_mesh(MeshConfig())
        placed = place_batch(np.split(rows, 2)[processes.number], mesh)
        assert placed.sharding == batch_sharding(mesh)
        for array in (placed, place_whole(rows, batch_sharding(mesh))):
            whole = whole_on({"rows": array}, local_mesh())["rows"]
            assert whole.sharding.mesh == local_mesh() and (np.asarray(whole) == rows).all()
        # What `doctor` compares an accelerator with.
        step.compared = lambda dtype, tolerance, device, reference: reference
        assert next(step.check_step(SimpleNamespace(platform="tpu"))) in jax.local_devices()
        print(*found, sep="; ", flush=True)
        if processes.number == 1:
            raise LookupError("only here")
        processes.gather([])
"""


@pytest.mark.extended
def test_tasks_of_a_job_find_each_other_and_one_that_fails_takes_the_other_along():
    """Two tasks with a device each; the second fails, while the first waits for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    tasks = []
    for number in range(2):
        task = {
            "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
            "JAX_COORDINATOR_PORT": str(port),
            "SLURM_JOB_ID": "1",
            "SLURM_STEP_NODELIST": "127.0.0.1",
            "SLURM_NTASKS": "2",
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(number),
        }
        command = [sys.executable, "-u", "-W", "error", "-c", textwrap.dedent(SLURM)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        tasks.append(subprocess.Popen(command, env=environment(**task), **streams))
    try:
        said = [task.communicate(timeout=300) for task in tasks]
    finally:
        for task in tasks:
            task.kill()
    for number, (output, complaints) in enumerate(said):
        lines = [line for line in output.splitlines() if "[Gloo]" not in line]
        assert lines == [f"{number}; 2; 2; {number}"], complaints
    assert tasks[1].returncode == 1
    assert "process 1 of 2 has failed: LookupError" in said[1][1]
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
    def recognises_nothing(*_: Any, **__: Any) -> None:
        raise ValueError("coordinator_address should be defined.")

    # One that has used JAX already is alone, too.
    assert jax.device_count() == 1
    with joined(None) as processes:
        assert processes is ALONE
    with pytest.raises(ProcessError, match="before any JAX calls"), joined(Cluster("a:1", 2, 0)):
        pass
    monkeypatch.setattr(jax.distributed, "initialize", recognises_nothing)
    with joined(None) as processes:
        assert processes is ALONE and processes.is_first
    value = object()
    assert ALONE.first(lambda: value) is value
    assert ALONE.gather(["a", "b"]) == [["a", "b"]]
    assert ALONE.ask(7) == 7
    with pytest.raises(LookupError), joined(None):
        raise LookupError
    # And so is the one task of a job.
    monkeypatch.setattr(jax.distributed, "initialize", pytest.fail)
    for name in ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "1")
            with joined(None) as processes:
                assert processes is ALONE


def parsed(arguments: str) -> Cluster | None:
    parser = argparse.ArgumentParser()
    add_processes(parser)
    return cluster(parser.parse_args(arguments.split()), parser)


def test_flags_say_who_is_who(capsys):
    flags = "--coordinator host:1234 --num-processes 4 --process-id 3"
    assert parsed(flags) == Cluster("host:1234", 4, 3)
    assert parsed("") is None
    assert parsed("--heartbeat 5") is None
    for wrong, message in [
        ("--coordinator host:1", "go together"),
        ("--num-processes 2 --process-id 0", "go together"),
        ("--coordinator host --num-processes 2 --process-id 0", "write HOST:PORT"),
        ("--coordinator host:1 --num-processes 2 --process-id 2", "must lie between"),
        ("--heartbeat 0", "at least 1 second"),
    ]:
        with pytest.raises(SystemExit) as stop:
            parsed(wrong)
        assert stop.value.code == 2
        assert message in capsys.readouterr().err
