"""The process's end in order whatever the model does, its address, and its connections."""

import os
import resource
import signal
import threading
import time

import pytest

from flaxformer_mt.serving.server import TranslationServer, allow_files, bind
from flaxformer_mt.serving.settings import SettingsError
from tests.serving.stand_in import MODEL, Running, StandIn, eventually, quick, running
from tests.serving.test_load import connect, request


def stop(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def serve(act, translator=None, **settings):
    """A server in this thread, which signals reach, until `act`, in another one, has stopped it.

    Returns the seconds to the end since `act` began to send signals, which it returns, and what
    was said. The model hangs until the server has returned.
    """
    listener, said, begun = bind("127.0.0.1", 0), [], []
    translator = translator or StandIn()
    server = TranslationServer(
        translator, MODEL, quick(**settings), listener=listener, say=said.append
    )

    def beside():
        try:
            begun.append(act(Running(server, listener.getsockname()[1], said), translator))
        finally:
            if not begun:  # what went wrong shows below
                stop()
                stop()

    thread = threading.Thread(target=beside)
    thread.start()
    server.run_until_stopped()
    ended = time.monotonic()
    assert not translator.open.is_set() and server.model_at_work
    translator.open.set()
    thread.join(30)
    return ended - begun[0], said


def accepted(translator, server):
    """A client whose request is with the model, which hangs."""
    eventually(lambda: server.server.started and "ready" in server.said)
    translator.open.clear()
    client = connect(server)
    client.sendall(request("a"))
    eventually(lambda: bool(translator.calls))
    return client


def test_a_model_that_hangs_is_waited_for_as_long_as_was_said():
    def act(server, translator):
        with accepted(translator, server) as client:
            begun = time.monotonic()
            stop()
            answer = client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 503 ") and b"the server is stopping" in answer
        return begun

    seconds, said = serve(act, drain_seconds=1.0)
    assert seconds > 0.9
    assert said[-1] == "stopping while the model is still working"
    assert not [line for line in said if "Traceback" in line]


@pytest.mark.parametrize(
    ("leaves", "second"), [(False, signal.SIGTERM), (False, signal.SIGINT), (True, signal.SIGTERM)]
)
def test_a_second_signal_waits_for_no_request_and_for_no_model(leaves, second):
    """If the client has left, there is nothing but the model to wait for."""

    def act(server, translator):
        with accepted(translator, server) as client:
            if leaves:
                client.close()
                eventually(lambda: not server.connections)
            begun = time.monotonic()
            stop()
            eventually(lambda: any("finishing accepted requests" in line for line in server.said))
            eventually(lambda: server.server._service.batcher.closed or not leaves)
            stop(second)
            if not leaves:
                client.recv(65536)
        return begun

    assert serve(act, drain_seconds=300.0)[0] < 150


def test_a_model_that_warms_up_for_nobody_is_not_waited_for():
    translator = StandIn()
    translator.open.clear()

    def act(*_):
        eventually(lambda: bool(translator.calls))  # the warm-up is under way
        begun = time.monotonic()
        stop()
        return begun

    seconds, said = serve(act, translator, drain_seconds=300.0, warm_up_words=10)
    assert seconds < 150 and "warm" not in said


@pytest.mark.parametrize(
    ("soft", "hard", "given"),
    [(1024, 4096, 1104), (1104, 4096, 1104), (256, resource.RLIM_INFINITY, 1104), (64, 1103, None)],
)
def test_connections_fit_the_limit_of_open_files(monkeypatch, soft, hard, given):
    def raise_limit(which, limits):
        nonlocal soft
        if limits[0] > hard != resource.RLIM_INFINITY:
            raise ValueError("not allowed to raise maximum limit")
        soft = limits[0]

    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", raise_limit)
    if given is None:
        with pytest.raises(SettingsError, match="--connections 512 needs 1104 open files"):
            allow_files(512)
    else:
        allow_files(512)
        assert soft == given


ORIGIN = "https://their.site"


@pytest.fixture
def full_server():
    """A server that has as many connections as it may have."""
    with running(StandIn(), connections=4, cors_origins=(ORIGIN,)) as server:
        clients = [connect(server) for _ in range(3)]
        eventually(lambda: server.connections == 3)
        assert server.translate("a")[0] == 200
        clients.append(connect(server))
        eventually(lambda: server.connections == 4)
        yield server
        for client in clients:
            client.close()
        eventually(lambda: not server.connections)
        assert server.get("/languages")[0] == 200


def test_beyond_the_connections_there_may_be_the_answer_is_json(full_server):
    status, answer, headers = full_server.get("/languages", {"origin": ORIGIN})
    assert (status, answer) == (503, {"error": "more than 4 connections are open"})
    assert int(headers["retry-after"]) >= 1 and headers["connection"] == "close"
    assert "content-security-policy" in headers
    assert headers["access-control-allow-origin"] == ORIGIN
    assert headers["access-control-expose-headers"] == "retry-after"
    preflight = {"origin": ORIGIN, "access-control-request-method": "POST"}
    status, _, headers = full_server.ask("OPTIONS", "/translate", headers=preflight)
    assert status == 503 and headers["connection"] == "close"


def test_refused_connections_are_counted(full_server):
    full_server.get("/languages")
    full_server.ask("OPTIONS", "/translate")
    # Whoever looks after it sees what is the matter.
    assert full_server.get("/health")[0] == 200
    assert full_server.refused("connections") == 2
    assert full_server.metric('flaxformer_requests_total{path="/languages",status="503"}') == 1
