"""`serve` as a process: it stops in order, and at once while it compiles."""

import contextlib
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from benchmarks.serving.process import ServerProcess
from tests.decoding.runs import make_run
from tests.serving.test_load import request
from tests.system.conftest import started, wait_until


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("serve") / "run", {1: None}).path


@contextlib.contextmanager
def server(*options: object, **variables: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """The process and what it says."""
    with started("serve", "--port", 0, *options, **variables) as process:
        assert process.stderr is not None
        try:
            yield process, process.stderr
        finally:
            process.kill()


def test_sigterm_stops_it_in_order(workdir: Path) -> None:
    with server("--workdir", workdir, "--warm-up", 0) as (process, stderr):
        said = list(iter(stderr.readline, "ready\n"))
        port = int(re.search(r"127\.0\.0\.1:(\d+)", "".join(said))[1])  # type: ignore[index]
        clients = [socket.create_connection(("127.0.0.1", port), timeout=300) for _ in range(4)]
        for client in clients:
            client.sendall(request("the old house ."))
        # The first answers wait for a compilation; the signal comes as soon as all are accepted.
        metrics = ServerProcess(port).metrics
        wait_until(lambda: metrics()["flaxformer_sentences_total"] >= 4, process)
        process.terminate()
        for client in clients:
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
            client.close()
        said += stderr.readlines()
        assert process.wait(300) == 0, said
        assert said[-2:] == ["SIGTERM: finishing accepted requests, then stopping\n", "stopped\n"]


@pytest.mark.extended
def test_a_signal_while_it_compiles_stops_it_at_once(workdir: Path, tmp_path: Path) -> None:
    """Nobody waits for that model, and the process ends as one that has done what it was told."""
    # Nothing compiled is found there.
    empty = {"FLAXFORMER_CACHE": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": ""}
    with server("--workdir", workdir, "--drain", 300, **empty) as (process, stderr):
        said = [stderr.readline() for _ in range(3)]
        assert said[1] == "ready\n" and said[2].startswith("warming up 1 of "), said
        process.send_signal(signal.SIGTERM)
        said += stderr.readlines()
        assert process.wait(200) == 0, said  # less than it may take to answer what it accepted
        assert "warm\n" not in said and said[-1] == "stopped\n"
