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
    listener, said, told = bind("127.0.0.1", 0), [], []
    translator = translator or StandIn()
    server = TranslationServer(
        translator, MODEL, quick(**settings), listener=listener, say=said.append
    )

    def beside():
        try:
            told.append(act(Running(server, listener.getsockname()[1], said), translator))
        finally:
            if not told:  # what went wrong shows below
                stop()
                stop()

    thread = threading.Thread(target=beside)
    thread.start()
    server.run_until_stopped()
    ended = time.monotonic()
    assert not translator.open.is_set() and server.model_at_work
    translator.open.set()
    thread.join(30)
    return ended - told[0], said


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
            told = time.monotonic()
            stop()
            answer = client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 503 ") and b"the server is stopping" in answer
        return told

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
            told = time.monotonic()
            stop()
            eventually(lambda: any("finishing accepted requests" in line for line in server.said))
            eventually(lambda: server.server._service.batcher.closed or not leaves)
            stop(second)
            if not leaves:
                client.recv(65536)
        return told

    assert serve(act, drain_seconds=300.0)[0] < 150


def test_a_model_that_warms_up_for_nobody_is_not_waited_for():
    translator = StandIn()
    translator.open.clear()

    def act(*_):
        eventually(lambda: bool(translator.calls))  # the warm-up is under way
        told = time.monotonic()
        stop()
        return told

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


def test_beyond_the_connections_there_may_be_the_answer_is_json_and_counted():
    origin = "https://their.site"
    with running(StandIn(), connections=4, cors_origins=(origin,)) as server:
        others = [connect(server) for _ in range(3)]
        eventually(lambda: server.connections == 3)
        assert server.translate("a")[0] == 200
        others.append(connect(server))
        eventually(lambda: server.connections == 4)
        status, answer, headers = server.get("/languages", {"origin": origin})
        assert (status, answer) == (503, {"error": "more than 4 connections are open"})
        assert int(headers["retry-after"]) >= 1 and headers["connection"] == "close"
        assert "content-security-policy" in headers
        assert headers["access-control-allow-origin"] == origin
        assert headers["access-control-expose-headers"] == "retry-after"
        preflight = {"origin": origin, "access-control-request-method": "POST"}
        status, _, headers = server.ask("OPTIONS", "/translate", headers=preflight)
        assert status == 503 and headers["connection"] == "close"
        # Whoever looks after it sees what is the matter.
        assert server.get("/health")[0] == 200
        assert server.refused("connections") == 2
        assert server.metric('flaxformer_requests_total{path="/languages",status="503"}') == 1
        for each in others:
            each.close()
        eventually(lambda: not server.connections)
        assert server.get("/languages")[0] == 200
