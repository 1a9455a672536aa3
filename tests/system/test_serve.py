"""`serve` as a process: it stops in order."""

import contextlib
import re
import socket

from benchmarks.serving.process import ServerProcess
from tests.decoding.runs import make_run
from tests.serving.test_load import request
from tests.system.conftest import started, wait_until


def test_sigterm_stops_it_in_order(tmp_path):
    workdir = make_run(tmp_path / "run", {1: None}).path
    served = started("serve", "--port", 0, "--workdir", workdir, "--warm-up", 0)
    with served as process, contextlib.ExitStack() as at_end:
        at_end.callback(process.kill)
        stderr = process.stderr
        assert stderr is not None
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
