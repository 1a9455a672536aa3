"""Many clients at a time: limits of time, leaving, failures, keys."""

import concurrent.futures
import json
import re
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from flaxformer_mt.serving import service
from tests.serving.stand_in import StandIn, eventually, reversed_words, running

WAITING = "flaxformer_waiting_sentences"
KEYS = frozenset({"correct-horse", "another"})


def request(text: str) -> bytes:
    body = json.dumps({"text": text}).encode()
    head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=30)


def test_what_takes_too_long_is_answered_and_dropped():
    translator = StandIn()
    clients = concurrent.futures.ThreadPoolExecutor(3)
    with running(translator, seconds=0.5) as server, clients:
        translator.open.clear()
        requests = [clients.submit(server.translate, "a") for _ in range(3)]
        for pending in requests:
            status, answer = pending.result()
            assert status == 503 and "no answer within 0.5 s" in answer["error"]
        assert server.metric(WAITING) == 0
        translator.open.set()
        assert server.translate("b")[0] == 200
        # One was with the model when its time was over; the others never got there.
        assert [lines[:1] for lines, _ in translator.calls] == [["a"], ["b"]]
        assert len(translator.threads) == 1, "the model belongs to one thread"


def test_a_client_that_leaves_takes_its_sentences_out_of_the_queue():
    translator = StandIn()
    with running(translator) as server:
        translator.open.clear()
        staying = connect(server)
        staying.sendall(request("stay"))
        eventually(lambda: bool(translator.calls))
        leaving = [connect(server) for _ in range(3)]
        for leaver in leaving:
            leaver.sendall(request("leave\n" * 10))
        eventually(lambda: server.metric(WAITING) == 30)
        # The first resets the connection instead of closing it.
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
        leaving[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        for leaver in leaving:
            leaver.close()
        eventually(lambda: server.metric(WAITING) == 0)
        assert server.refused("gone") == 3
        translator.open.set()
        with staying:
            assert staying.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert [lines for lines, _ in translator.calls] == [["stay"]]
        for length in (1, 60, 100, 130):  # in the middle of a body
            with connect(server) as client:
                client.sendall(request("a" * 200)[:length])
        eventually(lambda: not server.connections)
        assert server.translate("a")[0] == 200
        assert not server.errors()


def test_requests_one_after_another_and_a_wish_for_another_protocol():
    """Java's HttpClient has that wish in its first request."""
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"
    message = request("two words").replace(b"Content-Type", wish + b"Content-Type")
    head, _, body = message.partition(b"\r\n\r\n")
    with running(StandIn()) as server, connect(server) as client:
        for parts in ([message], [head + b"\r\n\r\n", body], [message[:30], message[30:]]):
            for part in parts:
                client.sendall(part)
                time.sleep(0.05)
            assert b"WORDS TWO" in client.recv(65536)
        client.sendall(request("first one") + request("second two"))  # pipelined
        answer = b""
        while answer.count(b'"at_limit"') < 2:
            answer += client.recv(65536)
        assert answer.index(b"ONE FIRST") < answer.index(b"TWO SECOND")


def test_a_failing_model_tells_the_client_nothing_and_the_operator_where():
    with running(StandIn()) as server:
        status, answer = server.translate("BROKEN, do not repeat")
        assert status == 500
        number = answer["error"].removeprefix("internal error ")
        assert len(number) == 12
        (message,) = server.errors()
        assert message.startswith(f"error {number}\n") and "stand_in.py" in message
        assert "do not repeat" not in message


def test_a_model_that_fails_three_times_in_a_row_is_failing_until_it_answers():
    with running(StandIn()) as server:
        server.translate("BROKEN")
        assert server.get("/health")[0] == 200
        for _ in range(2):
            server.translate("BROKEN")
        assert server.get("/health")[:2] == (503, {"status": "failing"})
        assert server.translate("whole")[0] == 200
        assert server.get("/health")[0] == 200


def test_what_nobody_asks_any_more_is_not_failing_for_ever(monkeypatch):
    later = 0.0
    clocks = SimpleNamespace(**vars(time))
    clocks.monotonic = lambda: time.monotonic() + later
    monkeypatch.setattr(service, "time", clocks)  # the event loop's own goes on as it is
    with running(StandIn()) as server:

        def health_after(seconds):
            nonlocal later
            later += seconds
            return server.get("/health")[0]

        for _ in range(3):
            server.translate("BROKEN")
        assert [health_after(50), health_after(20)] == [503, 200]
        # One more failure, and the time begins anew.
        server.translate("BROKEN")
        assert [health_after(50), health_after(20)] == [503, 200]


def test_texts_are_logged_only_where_asked_and_never_pass_for_lines_of_the_log():
    class Chained(StandIn):
        def translate_with(self, lines, *options):
            try:
                return super().translate_with(lines, *options)
            except RuntimeError as error:
                raise ValueError(f"one\nof: {lines}") from error

    for log, requests, texts in [("quiet", 0, 0), ("requests", 2, 0), ("text", 2, 1)]:
        with running(Chained(), log=log) as server:
            server.post("/translate?text=hidden", {"text": "private words"})
            server.get("/hidden")
            logged = re.compile(r"(?!GET /health).* ms")  # not those that wait for the start
            eventually(lambda: len([*filter(logged.match, server.said)]) == requests)  # noqa: B023
            said = "\n".join(server.said)
            assert said.count("private words") == texts and "hidden" not in said
            server.translate("BROKEN \x1b[2J forged")
            (said,) = server.errors()
            assert "RuntimeError" in said and said.splitlines()[-1].startswith("ValueError ")
            assert "\x1b" not in "".join(server.said)
            assert ("forged" in said) == (r"\x1b[2J" in said) == (log == "text")


@pytest.mark.parametrize(
    ("error", "words"), [(MemoryError("no room for the model"), 10), (SystemExit(3), 0)]
)
def test_a_model_that_cannot_be_prepared_or_leaves_ends_the_server(error, words):
    class Broken(StandIn):
        def translate_with(self, lines, *options):
            raise error

    with running(Broken(), warm_up_words=words, wait=not words) as server:
        if not words:
            status, answer = server.translate("a")
            assert status == 500 and answer["error"].startswith("internal error ")
        eventually(lambda: bool(server.ended))
    assert [str(cause) for cause in server.ended] == [f"the model cannot be used: {error}"]


def test_requests_are_answered_between_two_steps_of_the_warm_up():
    class Patient(StandIn):
        def compile(self, *given, **settings):
            may.acquire(timeout=60)
            return super().compile(*given, **settings)

    translator, may = Patient(), threading.Semaphore(2)
    with running(translator, warm_up_words=20, batch_sentences=4, wait=False) as server:
        eventually(lambda: server.get("/health")[1].get("done") == 2)
        status, health, _ = server.get("/health")
        assert (status, health) == (200, {"status": "warming", "done": 2, "of": 50})
        with concurrent.futures.ThreadPoolExecutor(1) as client:
            answer = client.submit(server.translate, "b a")
            eventually(lambda: server.metric("flaxformer_sentences_total") == 1)
            may.release()
            assert answer.result()[1]["translations"][0]["text"] == reversed_words("b a")
        assert server.get("/health")[1] == {"status": "warming", "done": 3, "of": 50}
        may.release(100)
        eventually(lambda: server.get("/health")[1] == {"status": "ok"})
        translator.calls = [call for call in translator.calls if call[0] != ["b a"]]
        seen = {(len(lines), len(lines[0].split()), n_best) for lines, n_best in translator.calls}
        # Every size of batch; to the stand-in each length is another shape.
        lengths = (5, 7, 11, 15, 23)
        assert seen == {(size, n, k) for size in (1, 4) for n in lengths for k in (1, 4)}
        assert [line for line in server.said if line.startswith("warming up 1 of 50: ")]
        said = [line for line in server.said if line.startswith("warming up")]
        assert ["with terms" in line for line in said] == [False] * 30 + [True] * 20


@pytest.fixture(scope="module")
def guarded():
    """A server that needs one of KEYS."""
    with running(StandIn(), keys=KEYS) as server:
        yield server


def test_without_a_key_the_answer_says_that_one_is_needed(guarded):
    status, answer, headers = guarded.ask(
        "POST", "/translate", '{"text": "a"}', {"content-type": "application/json"}
    )
    assert status == 401 and "an API key is needed" in answer["error"]
    assert headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("path", "name"), [("/translate", "text"), ("/detect", "q"), ("/attention", "text")]
)
@pytest.mark.parametrize(
    ("status", "fields", "headers"),
    [
        (200, {}, {"authorization": "Bearer correct-horse"}),
        (200, {}, {"Authorization": "bearer correct-horse"}),
        (200, {}, {"X-API-Key": "correct-horse"}),
        (200, {"api_key": "another"}, {}),
        (403, {}, {"authorization": "Bearer correct-hors"}),
        (403, {}, {"X-API-Key": ""}),
        (403, {}, {"X-API-Key": "\xff"}),
        (403, {"api_key": "нет"}, {}),
        (403, {"api_key": ["correct-horse"]}, {}),
        (401, {"api_key": None}, {}),
        (401, {}, {}),
    ],
)
def test_keys_open_what_costs(guarded, path, name, status, fields, headers):
    assert guarded.post(path, {name: "a"} | fields, **headers)[0] == status


def test_metrics_need_a_key_and_pages_need_none(guarded):
    assert guarded.get("/metrics")[0] == 401
    assert guarded.get("/metrics", {"authorization": "Bearer correct-horse"})[0] == 200
    for path in ("/", "/health", "/languages", "/openapi.json", "/docs", "/frontend/settings"):
        assert guarded.get(path)[0] == 200


def test_a_wrong_key_is_refused_before_the_body_is_read(guarded):
    with connect(guarded) as client:
        head, _, _ = request("a" * 1000).partition(b"Content-Length")
        client.sendall(head + b"X-API-Key: wrong\r\nContent-Length: 1000\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 403 ")
