"""Finding each other, sharing a batch's rows, and what a process that is alone is spared.

A first signal asks, a second one acts as it would have without us.
"""

import argparse
import contextlib
import signal
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from flaxformer_mt.cli.arguments import add_processes, cluster
from flaxformer_mt.parallel.mesh import batch_share
from flaxformer_mt.parallel.processes import ALONE, Cluster, ProcessError, StopRequest, joined


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
    shares = []
    for number in range(max(processes) + 1):
        monkeypatch.setattr(jax, "process_index", lambda number=number: number)
        shares.append(batch_share(mesh_of(processes, *sizes)))
    assert shares == [(part, count) for part in parts]


@pytest.mark.parametrize(
    ("coordinator", "bound"),
    [
        ("localhost:1234", "127.0.0.1:1234"),
        ("127.0.0.1:1234", "127.0.0.1:1234"),
        ("[::1]:1234", "[::1]:1234"),
        ("host0:1234", None),  # JAX's own: all interfaces
        ("localhost.example.org:1234", None),
    ],
)
def test_processes_of_one_machine_listen_there_only(monkeypatch, coordinator, bound):
    class Connected(Exception):
        pass

    initialize = mock.Mock(side_effect=Connected)
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(Connected), joined(Cluster(coordinator, 2, 0)):
        pass
    assert initialize.call_args.kwargs["coordinator_bind_address"] == bound


def test_the_users_choice_of_an_interface_wins(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "[::]:1234")
    initialize = mock.Mock(side_effect=LookupError)
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    with pytest.raises(LookupError), joined(Cluster("localhost:1234", 2, 0)):
        pass
    assert initialize.call_args.kwargs["coordinator_bind_address"] is None


def test_a_process_that_has_used_jax_already_is_alone():
    assert jax.device_count() == 1
    with joined(None) as processes:
        assert processes is ALONE
    with pytest.raises(ProcessError, match="before any JAX calls"), joined(Cluster("a:1", 2, 0)):
        pass


def test_a_process_without_a_coordinator_is_alone(monkeypatch):
    nothing = ValueError("coordinator_address should be defined.")
    monkeypatch.setattr(jax.distributed, "initialize", mock.Mock(side_effect=nothing))
    with joined(None) as processes:
        assert processes is ALONE and processes.is_first
    with pytest.raises(LookupError), joined(None):
        raise LookupError


def test_a_process_alone_exchanges_with_itself():
    answer = object()
    assert ALONE.first(lambda: answer) is answer
    assert ALONE.gather(["a", "b"]) == [["a", "b"]]
    assert ALONE.ask(7) == 7


@pytest.mark.parametrize("name", ["SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"])
def test_the_one_task_of_a_job_is_alone(monkeypatch, name):
    monkeypatch.setattr(jax.distributed, "initialize", pytest.fail)
    monkeypatch.setenv(name, "1")
    with joined(None) as processes:
        assert processes is ALONE


def test_flags_say_who_is_who():
    parser = argparse.ArgumentParser()
    add_processes(parser)
    flags = "--coordinator host:1234 --num-processes 4 --process-id 3"
    for words, meant in ((flags, Cluster("host:1234", 4, 3)), ("", None), ("--heartbeat 5", None)):
        assert cluster(parser.parse_args(words.split()), parser) == meant


SIGNALS = (signal.SIGINT, signal.SIGTERM)


def test_a_request_is_answered_with_what_is_still_finished(capfd):
    with StopRequest() as stop:
        stop.after = "this validation"
        signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err.strip() == "SIGINT: stopping after this validation"


@pytest.mark.parametrize("number", [*SIGNALS, None])
def test_a_signal_is_a_request_that_one_process_heeds_at_once(number):
    before = [signal.getsignal(signal_number) for signal_number in SIGNALS]
    with contextlib.suppress(RuntimeError), StopRequest() as stop:
        assert stop.received is stop.reason is None
        if number is None:
            raise RuntimeError
        signal.raise_signal(number)
        assert stop.received == number.name and stop.reason == f"{number.name} received"
    assert [signal.getsignal(signal_number) for signal_number in SIGNALS] == before


def test_a_second_signal_acts_as_usual():
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.received == "SIGTERM"
