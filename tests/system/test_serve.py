"""`serve` as a process: it starts, answers as its guide says, and stops in order."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from benchmarks.serving.process import ServerProcess, serving
from tests.decoding.runs import make_run
from tests.serving.test_load import request
from tests.system.conftest import ROOT, WARNINGS


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("serve") / "run", {1: None}).path


@pytest.fixture(scope="module")
def server(workdir: Path) -> Iterator[ServerProcess]:
    with serving(workdir, ["--warm-up", "1", "--batch", "4"]) as server:
        yield server


def examples() -> list[str]:
    """The guide's calls of curl, a command each."""
    guide = (ROOT / "docs" / "serving.md").read_text()
    blocks = re.findall(r"^```bash\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    calls = [line for line in lines if line.startswith("curl ")]
    assert len(calls) >= 6
    return calls


@pytest.mark.parametrize("command", examples(), ids=lambda command: command[-50:])
def test_the_guides_calls_are_answered(server: ServerProcess, command: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    address = "http://127.0.0.1:8000"
    assert command.startswith(f"curl {address}/")
    done = subprocess.run(
        ["bash", "-c", command.replace(address, server.url) + " -sS --fail-with-body"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "error" not in json.loads(done.stdout)


@contextlib.contextmanager
def started(*options: object, **variables: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """The process and what it says."""
    process = subprocess.Popen(
        [*(sys.executable, *WARNINGS, "-m", "flaxformer_mt.cli.main", "serve"), *map(str, options)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | variables,
    )
    with process:
        assert process.stderr is not None
        try:
            yield process, process.stderr
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.extended)])
def test_a_signal_stops_it_in_order(workdir: Path, name: str) -> None:
    said: list[str] = []
    with started("--workdir", workdir, "--port", 0, "--warm-up", 0) as (process, stderr):
        for line in stderr:
            said.append(line)
            if line == "ready\n":
                break
        port = int(re.search(r"127\.0\.0\.1:(\d+)", "".join(said))[1])  # type: ignore[index]
        clients = [socket.create_connection(("127.0.0.1", port), timeout=300) for _ in range(4)]
        for client in clients:
            client.sendall(request("the old house ."))
        # The first answers wait for a compilation; the signal comes as soon as all are accepted.
        while ServerProcess(port).metrics()["flaxformer_sentences_total"] < 4:
            time.sleep(0.01)
        process.send_signal(getattr(signal, name))
        for client in clients:
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
            client.close()
        said += stderr.readlines()
        assert process.wait(300) == 0, said
        assert said[-2:] == [f"{name}: answering what was accepted, then stopping\n", "stopped\n"]


@pytest.mark.extended
def test_a_signal_while_it_compiles_stops_it_at_once(workdir: Path, tmp_path: Path) -> None:
    """Nobody waits for that model, and the process ends as one that has done what it was told."""
    # Nothing compiled is found there.
    empty = {"FLAXFORMER_CACHE": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": ""}
    options = ("--workdir", workdir, "--port", 0, "--drain", 300)
    with started(*options, **empty) as (process, stderr):
        said = [stderr.readline(), stderr.readline()]
        assert said[1].startswith("warming up 1 of "), said
        process.send_signal(signal.SIGTERM)
        said += stderr.readlines()
        assert process.wait(200) == 0, said  # less than it may take to answer what it accepted
        assert "ready\n" not in said and said[-1] == "stopped\n"
