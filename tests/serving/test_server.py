"""The process's end in order whatever the model does, its address, and its connections."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from flaxformer_mt.serving.server import ServerError, TranslationServer, allow_files, bind
from flaxformer_mt.serving.settings import ServerSettings, SettingsError
from tests.serving.stand_in import MODEL, Running, StandIn, eventually, quick, running
from tests.serving.test_load import connect, request


@contextlib.contextmanager
def acting(act: Callable[[], None]) -> Iterator[None]:
    """A thread that acts beside the server; what goes wrong in it is raised here."""
    wrong: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            wrong.append(error)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(30)
    assert not wrong, wrong


class Told:
    """When the first signal was sent."""

    at: float | None = None

    def __call__(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.at = time.monotonic() if self.at is None else self.at
        os.kill(os.getpid(), number)


Act = Callable[[Running, Told], None]


def serve(translator: StandIn, settings: ServerSettings, act: Act) -> tuple[float, list[str]]:
    """A server in this thread, which signals reach, until `act` has stopped it.

    Returns the seconds from the first signal to the end, and what was said.
    """
    listener = bind("127.0.0.1", 0)
    said: list[str] = []
    server = TranslationServer(translator, MODEL, settings, listener=listener, say=said.append)
    beside, told = Running(server, listener.getsockname()[1], said, []), Told()
    with acting(lambda: act(beside, told)):
        server.run_until_stopped()
        ended = time.monotonic()
        assert not translator.open.is_set(), "the model hangs until the server has returned"
        translator.open.set()
    assert told.at is not None
    return ended - told.at, said


def accepted(translator: StandIn, server: Running) -> socket.socket:
    """A client whose request is with the model, which hangs."""
    eventually(lambda: server.server.started and "ready" in server.said)
    translator.open.clear()
    client = connect(server)
    client.sendall(request("a"))
    eventually(lambda: bool(translator.calls))
    return client


def test_a_model_that_hangs_is_waited_for_as_long_as_was_said() -> None:
    translator = StandIn()

    def act(server: Running, tell: Told) -> None:
        with accepted(translator, server) as client:
            tell()
            answer = client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 503 ") and b"the server is stopping" in answer

    seconds, said = serve(translator, quick(drain_seconds=1.0), act)
    assert seconds > 0.9
    assert said[-1] == "the model is still at work, and not waited for"
    assert not [line for line in said if "Traceback" in line]


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_waits_for_no_request(second: signal.Signals) -> None:
    translator = StandIn()

    def act(server: Running, tell: Told) -> None:
        with accepted(translator, server) as client:
            tell()
            eventually(lambda: any("answering what was accepted" in line for line in server.said))
            tell(second)
            client.recv(65536)

    assert serve(translator, quick(drain_seconds=300.0), act)[0] < 150


def test_a_second_signal_waits_for_no_model() -> None:
    """Its client has left: there is nothing but the model to wait for."""
    translator = StandIn()

    def act(server: Running, tell: Told) -> None:
        accepted(translator, server).close()
        eventually(lambda: not server.server.server_state.connections)
        tell()
        eventually(lambda: server.server._service.batcher.closed)
        tell()

    assert serve(translator, quick(drain_seconds=300.0), act)[0] < 150


def test_a_model_that_was_never_ready_is_not_waited_for() -> None:
    translator = StandIn()
    translator.open.clear()

    def act(_: Running, tell: Told) -> None:
        eventually(lambda: bool(translator.calls))  # the warm-up is under way
        tell()

    seconds, said = serve(translator, quick(drain_seconds=300.0, warm_up_words=10), act)
    assert seconds < 150 and "ready" not in said


@pytest.mark.parametrize(
    ("soft", "hard", "given"),
    [(1024, 4096, 1104), (1104, 4096, 1104), (256, resource.RLIM_INFINITY, 1104), (64, 1103, None)],
)
def test_connections_fit_the_limit_of_open_files(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, given: int | None
) -> None:
    def raise_limit(which: int, limits: tuple[int, int]) -> None:
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


def test_an_address_is_one_servers_from_the_start() -> None:
    """Not only once the model is loaded."""
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ServerError, match=rf"cannot listen on 127.0.0.1:{port}: Address alr"):
            bind("127.0.0.1", port)


def test_beyond_the_connections_there_may_be_the_answer_is_json_and_counted() -> None:
    origin = "https://their.site"
    with running(StandIn(), quick(connections=4, cors_origins=(origin,))) as server:
        others = [connect(server) for _ in range(3)]
        eventually(lambda: len(server.server.server_state.connections) == 3)
        assert server.post("/translate", {"text": "a"})[0] == 200
        others.append(connect(server))
        eventually(lambda: len(server.server.server_state.connections) == 4)
        status, answer, headers = server.ask("GET", "/languages", headers={"origin": origin})
        assert (status, answer) == (503, {"error": "more than 4 connections are open"})
        assert int(headers["retry-after"]) >= 1 and headers["connection"] == "close"
        assert "content-security-policy" in headers
        assert headers["access-control-allow-origin"] == origin
        assert headers["access-control-expose-headers"] == "retry-after"
        preflight = {"origin": origin, "access-control-request-method": "POST"}
        status, _, headers = server.ask("OPTIONS", "/translate", headers=preflight)
        assert status == 503 and headers["connection"] == "close"
        # Whoever looks after it sees what is the matter.
        assert server.ask("GET", "/health")[0] == 200
        assert server.metric('flaxformer_refused_total{reason="connections"}') == 2
        assert server.metric('flaxformer_requests_total{path="/languages",status="503"}') == 1
        for each in others:
            each.close()
        eventually(lambda: not server.server.server_state.connections)
        assert server.ask("GET", "/languages")[0] == 200
