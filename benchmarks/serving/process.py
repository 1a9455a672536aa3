"""The server as a process of its own, and its metrics."""

import contextlib
import http.client
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path


class ServerFailed(Exception):
    """A server that did not start, or did not end as it should; the message has its log."""


class ServerProcess:
    """One that listens on a port of this machine."""

    def __init__(self, port: int, pid: int = 0) -> None:
        self.port, self.pid = port, pid

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        """Each value by its name with its labels."""
        lines = self.get("/metrics")[1].decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(number) for name, _, number in pairs}

    def memory_mib(self) -> float:
        return self.metrics()["process_resident_memory_bytes"] / 2**20


@contextlib.contextmanager
def serving(
    workdir: Path, options: Sequence[str] = (), *, seconds: float = 900.0
) -> Iterator[ServerProcess]:
    """Starts `flaxformer-mt serve`, waits until it is ready, and stops it as an operator would.

    Raises ServerFailed if it is not ready in time, or if it does not end well.
    """
    command = [sys.executable, "-m", "flaxformer_mt", "serve", "--workdir", str(workdir)]
    with tempfile.NamedTemporaryFile(prefix="serve-", suffix=".log") as log_file:
        log = Path(log_file.name)
        process = subprocess.Popen([*command, "--port", "0", *options], stderr=log_file)
        yield from lifetime(process, log, seconds)


def lifetime(
    process: subprocess.Popen[bytes], log: Path, seconds: float
) -> Iterator[ServerProcess]:
    """Waits until a server that logs its address is ready, yields it once, and stops it."""
    try:
        server = ServerProcess(_port(process, log, time.monotonic() + seconds), process.pid)
        while not _ready(server):
            if process.poll() is not None:
                raise ServerFailed(log.read_text())
            time.sleep(0.2)
        yield server
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
        if status != 0:
            raise ServerFailed(f"it ended with status {status}:\n{log.read_text()}")
    finally:
        process.kill()
        process.wait()


def _port(process: subprocess.Popen[bytes], log: Path, end: float) -> int:
    while time.monotonic() < end and process.poll() is None:
        address = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())
        if address:
            return int(address[1])
        time.sleep(0.1)
    raise ServerFailed(log.read_text())


def _ready(server: ServerProcess) -> bool:
    try:
        return bool(json.loads(server.get("/health")[1])["status"] == "ok")
    except OSError:
        return False  # it is not listening yet
