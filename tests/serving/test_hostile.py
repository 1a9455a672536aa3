"""Requests that nobody should send: each gets its answer, none an error of ours, none a trace."""

import asyncio
import contextlib
import re
import socket
import time
from types import SimpleNamespace

import pytest

from flaxformer_mt.serving import lingering, requests
from tests.serving.stand_in import StandIn, eventually, running
from tests.serving.test_load import connect

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
POST = b"POST /translate HTTP/1.1\r\n" + HEAD
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def unharmed(seconds):
    """A server that gives clients so long, and still works without an error at the end."""
    limits = {"max_characters": 100, "max_texts": 4, "max_sentences": 6, "max_body_bytes": 20_000}
    with running(StandIn(), body_seconds=seconds, **limits) as server:
        yield server
        assert server.translate("a b")[0] == 200  # still there
        assert not server.errors()
        assert 'status="500"' not in server.get("/metrics")[1].decode()
        assert "Traceback" not in "".join(server.said)


@pytest.fixture(scope="module")
def server():
    """Its limit on time is reached by no request, however slow the machine is."""
    yield from unharmed(300.0)


@pytest.fixture(scope="module")
def impatient():
    """For tests in which the client never finishes, so that only hanging up ends them."""
    yield from unharmed(0.4)


TEXTS = "'text' should be a valid string or be a valid list"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON: EOF"),
        (b"\xff\xfe{}", "not JSON: expected value at line 1 column 1"),
        (b'{"text": "caf\xe9"}', "not JSON: invalid unicode"),
        (b"[" * 15_000, "recursion limit"),
        (b'{"text": NaN}', "not JSON"),
        (b'{"n_best": ' + b"9" * 5000 + b', "text": "a"}', "number out of range"),
        (b'["text"]', "must be an object"),
        (b"{}", "'text' is missing"),
        (b'{"text": "a", "n_bets": 2}', "did you mean 'n_best'"),
        (b'{"text": "a", "\\u0000\\n": 2}', "unknown key"),
        (b'{"text": null}', "'text' is missing"),
        (b'{"text": []}', "have at least 1 item"),
        (b'{"text": "\\ud800"}', "hex escape"),
        (b'{"text": "a", "n_best": 0}', "'n_best' should be greater than or equal to 1"),
        (b'{"text": "a", "n_best": 5}', "'n_best' should be less than or equal to 4"),
        (b'{"text": "a", "n_best": true}', "'n_best' should be a valid integer"),
        (b'{"text": "a", "source": "fr"}', "'source' should be 'en' or 'auto'"),
        (b'{"q": "a"}', "'source' is missing"),
        (b'{"q": "a", "source": "en", "target": "de", "format": "pdf"}', "'format' should be"),
        (b'{"q": "a", "source": "en", "target": "de", "alternatives": "x"}', "a valid integer"),
        (b'{"q": "a", "source": "fr", "target": "de"}', "should be 'en', 'de' or 'auto'"),
        (b'{"q": "a", "source": null, "target": "de"}', "'source' is missing"),
    ],
    ids=range(22),
)
def test_a_bad_body_is_refused_with_the_reason(server, body, reason):
    status, answer, _ = server.ask("POST", "/translate", body, JSON)
    assert status == 400, answer
    assert set(answer) == {"error"} and reason in answer["error"]
    assert len(answer["error"]) < 200 and answer["error"].isprintable()


@pytest.mark.parametrize(
    ("path", "payload", "status", "reason"),
    [
        ("/attention", {"text": " \x1f\u0085 "}, 400, "'text' must not be blank"),
        ("/attention", {"text": ["a"]}, 400, "'text' should be a valid string"),
        ("/attention", {"text": "a", "translation": "\n"}, 400, "'translation' must not be blank"),
        ("/attention", {"text": "a", "kind": ["cross"]}, 400, "'cross', 'encoder' or 'decoder'"),
        ("/attention", {"text": "a", "layer": 3}, 400, "'layer' should be less than or equal to 2"),
        ("/attention", {"text": "a", "kind": "encoder", "layer": 2}, 400, "than or equal to 1"),
        ("/attention", {"text": "a", "layer": -1}, 400, "should be greater than or equal to 0"),
        ("/detect", {}, 400, "'q'"),
        # What is too large:
        ("/translate", {"text": "a" * 101}, 413, "'text' should have at most 100 characters"),
        ("/translate", {"text": ["a" * 60, "b" * 41]}, 413, "101 characters"),
        ("/translate", {"text": ["a"] * 5}, 413, "'text' should have at most 4 items"),
        ("/translate", {"text": "a\n" * 7}, 413, "7 sentences; at most 6"),
        ("/translate", {"q": "a" * 101, "source": "en", "target": "de"}, 400, "'q' should have at"),
        ("/attention", {"text": "a" * 101}, 413, "'text' should have at most 100 characters"),
    ],
    ids=range(14),
)
def test_other_bad_requests(server, path, payload, status, reason):
    answered, answer = server.post(path, payload)
    assert answered == status and reason in answer["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"q=a%ff&source=en&target=de", 400),
        (b"\xff=a", 400),
        (b"&".join(b"x%d=1" % number for number in range(200)), 413),
        (b"q=a&source=en&target=de&alternatives=-1", 200),  # as in LibreTranslate
        (b"q=a&source=en&target=de&alternatives=" + b"9" * 5000, 200),
        ("q=a&source=en&target=de&alternatives=²".encode(), 400),
        (b"text=a&alignment=true&n_best=2", 200),
    ],
    ids=range(7),
)
def test_forms(server, body, status):
    assert server.ask("POST", "/translate", body, FORM)[0] == status


def test_a_server_without_constraints(server):
    for constraints in ({"terms": {"a": "b"}}, {"forbid": ["a"]}):
        assert server.translate("a", **constraints)[0] == 200
    with running(StandIn(), constraints=False) as strict:
        for constraints in ({"terms": {"a": "b"}}, {"forbid": ["a"]}):
            status, answer = strict.translate("a", **constraints)
            assert status == 400 and "--no-constraints" in answer["error"]
        assert strict.translate("a", terms={}, forbid=[])[0] == 200
        assert strict.get("/frontend/settings")[1]["limits"]["constraints"] is False


FIELD = b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n'
FILE = b'--x\r\nContent-Disposition: form-data; name="q"; filename="a.txt"\r\n\r\na\r\n--x--'


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 400, "does not end with its boundary"),
        (FIELD % (b"q", b"a"), 400, "does not end with its boundary"),
        (b"--x\r\n--x--", 400, "has no head"),
        (b"--x\r\nA: b\r\n\r\na\r\n--x--", 400, "has no name"),
        (b"--x\r\nA: " + b"b" * 2000 + b"\r\n\r\na\r\n--x--", 400, "has no head"),
        (FIELD % (b"q", b"\xff") + b"--x--", 400, "not UTF-8"),
        (FIELD % (b"\xff", b"a") + b"--x--", 400, "not UTF-8"),
        (FIELD % (b"a", b"") * 101 + b"--x--", 413, "more than 100 fields"),
        (FILE, 400, "no file is translated here"),
        (
            FILE.replace(b"; filename", b"; a=").replace(
                b"\r\n\r\n", b"\r\nContent-Transfer-Encoding: base64\r\n\r\n"
            ),
            400,
            "without Content-Transfer-Encoding",
        ),
        (FIELD % (b"text", b"a") + b"--x--", 200, ""),
        # Text around the form, and what looks like a boundary or a file inside of values.
        (b"preamble\r\n" + FIELD % (b"text", b"a") + b"--x--\r\nepilogue\r\n--x\r\n", 200, ""),
        (FIELD % (b"text", b"a --x--\n--x; filename=b") + b"--x--", 200, ""),
        (FIELD % (b"text; filename=b", b"a") + b"--x--", 400, "unknown key 'text; filename=b'"),
        (FIELD.replace(b"; name", b"; a=b; NAME") % (b"text", b"a") + b"--x--", 200, ""),
        (FILE.replace(b"filename=", b"filename*=UTF-8''"), 400, "no file is translated here"),
        (FIELD % (b"text", b"a"), 400, "does not end"),
    ],
    ids=range(17),
)
def test_multipart_forms(server, body, status, reason):
    kind = {"content-type": "multipart/form-data; boundary=x"}
    answered, answer, _ = server.ask("POST", "/translate", body, kind)
    assert answered == status, answer
    assert reason in answer.get("error", "")


def test_a_multipart_form_needs_its_boundary(server):
    for parameters in ("", '; boundary=""', '; a="' + 30_000 * ";"):
        kind = {"content-type": f"multipart/form-data{parameters}"}
        start = time.perf_counter()
        status, answer, _ = server.ask("POST", "/translate", b"--x--", kind)
        assert status == 400 and "needs a boundary" in answer["error"]
        assert time.perf_counter() - start < 1


def test_json_that_curl_sends_as_a_form_is_told_its_header(server):
    answer = server.ask("POST", "/translate", b'{"text": "a"}', FORM)
    assert "header Content-Type: application/json" in answer[1]["error"]


def test_no_other_kinds_of_bodies(server):
    for headers in (
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/json", "content-encoding": "gzip"},
        {"content-type": "\xff"},
    ):
        assert server.ask("POST", "/translate", b"text=a", headers)[0] == 415


def raw(server, data, *, until_closed=False):
    """What a socket gets back: an answer, or all until the server closes it."""
    with connect(server) as client:
        with contextlib.suppress(ConnectionError):  # hung up on already
            client.sendall(data)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(65536):
                answer += part
                if not until_closed and b"\r\n\r\n" in answer and b'"}' in answer:
                    break
        return answer


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 9999999999999999999\r\n\r\n{",
        b"Content-Length: 30000\r\n\r\n" + b" " * 100,
        b"Transfer-Encoding: chunked\r\n\r\n" + (b"1000\r\n" + b" " * 4096 + b"\r\n") * 6,
    ],
    ids=range(3),
)
def test_an_oversize_body_is_refused_before_it_is_read(server, body):
    answer = raw(server, POST + body)
    assert b" 413 " in answer and b"more than 20000 bytes" in answer


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%ff%fe%00 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET /languages?\xff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        b"CONNECT / HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    ],
    ids=range(10),
)
def test_what_is_no_http_ends_without_a_server_error(impatient, data):
    answer = raw(impatient, data)
    assert b"Traceback" not in answer and b" 500 " not in answer.partition(b"\r\n")[0]


@pytest.mark.parametrize(
    ("begin", "again", "clients"),
    [
        (b"GET / HTTP/1.1\r\n" + CHUNKED, b"1\r\na\r\n", 1),
        (b"POST /translate HTTP/1.1\r\n" + CHUNKED, b"1\r\n \r\n", 5),
        (b"POST /nowhere HTTP/1.1\r\n" + CHUNKED, b"1\r\n \r\n", 1),
        (b"POST /translate HTTP/1.1\r\n" + CHUNKED + b"1;", b"name=value;", 1),
        (b"POST /translate HTTP/1.1\r\n" + CHUNKED + b"0\r\n", b"a: b\r\n", 1),
        (b"GET / HTTP/1.1\r\n", b"a: b\r\n", 1),
        (b"GET /?", b"a=b&", 1),
        (b"", b"\r\n", 1),
        (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1),
        (b"", b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\na", 1),
        (b"", b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", 1),
    ],
    ids=range(11),
)
def test_no_client_keeps_the_others_waiting(impatient, begin, again, clients):
    """7.5 MB in the smallest parts that there are take the server less than 0.2 s."""
    data = begin + again * (7_500_000 // clients // len(again))
    start = impatient.cpu_seconds()
    for _ in range(clients):
        raw(impatient, data)
    assert impatient.get("/health")[0] == 200
    assert impatient.cpu_seconds() - start < 0.2


def translation(word, *, more=0):
    """A request that asks for a word; with `more`, its body lacks so many bytes."""
    body = b'{"text": "%b"}' % word
    return POST + b"Content-Length: %d\r\n\r\n" % (len(body) + more) + body


@pytest.mark.parametrize(
    ("garbage", "statuses"),
    [
        (b"\x16\x03\x01garbage\r\n\r\n", [200, 200, 200, 400]),
        (b"GET / HTTP/1.1\r\nA b\r\n\r\n", [200, 200, 200, 400]),
        (b"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", [200, 200, 200, 400]),
        (b"POST /translate HTTP/1.1\r\n" + CHUNKED + b"garbage\r\n", [200, 200, 200, 400]),
        (POST + b"A: " + b"b" * 100_000, [200, 200, 200, 400]),  # a head without end
        (translation(b"four") * 20, [200] * 17 + [400]),  # more than may wait
        (translation(b"x" * 15_000) * 6, [200] * 3 + [413] * 6),  # much, but none of them is
        (b"", [200, 200, 200]),
        # Refused by its length, before any of it is read.
        (translation(b"four", more=100_000), [200, 200, 200, 413]),
    ],
    ids=range(9),
)
@pytest.mark.parametrize("together", [True, False])
def test_requests_before_what_is_no_http_are_answered_in_their_order(garbage, statuses, together):
    words = [b"one", b"two", b"three"]
    translator = StandIn()
    with running(translator, max_body_bytes=20_000) as server, connect(server) as client:
        translator.open.clear()
        requests = b"".join(map(translation, words))
        if together:
            client.sendall(requests + garbage)
        else:
            client.sendall(requests)
            eventually(lambda: len(translator.calls) == 1)
            client.sendall(garbage)
        eventually(lambda: len(translator.calls) == 1)
        time.sleep(0.05)
        translator.open.set()
        answer = b""
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            client.settimeout(30 if statuses[-1] == 400 else 0.3)
            while part := client.recv(65536):
                answer += part
    answered = [int(line[9:12]) for line in re.findall(rb"HTTP/1.1 \d+", answer)]
    assert answered == statuses
    places = [answer.index(b'"%b"' % word.upper()) for word in words]
    assert places == sorted(places)


def test_a_head_without_end_is_refused_however_it_is_cut(server):
    """The bytes that arrive with its beginning count as well."""
    with connect(server) as client:
        client.sendall(POST + b"A: " + b"b" * 60_000)
        time.sleep(0.1)
        client.sendall(b"b" * 40_000)
        assert b" 400 " in client.recv(65536)


def test_a_refused_client_that_sends_before_it_reads_gets_every_answer(server):
    """A kernel that closes a socket with unread bytes drops what it hasn't delivered."""
    earlier = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as client:
        # So little that the answers can't be delivered before the client reads.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.settimeout(30)
        client.connect(("127.0.0.1", server.port))
        client.sendall(earlier + POST + b"A: " + b"b" * 1_000_000)  # a head without end
        time.sleep(0.2)  # the server has long answered
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 2 and b" 400 " in answer


def test_a_body_refused_by_its_length_can_still_be_sent(server):
    with connect(server) as client:
        client.sendall(POST + b"Content-Length: 1000000\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b""))
        for _ in range(10):
            client.sendall(b" " * 100_000)  # a connection that is closed would be reset
    assert b" 413 " in answer


def test_a_refused_client_that_keeps_sending_is_hung_up_on(server, monkeypatch):
    """After so many bytes, or so long."""
    monkeypatch.setattr(lingering, "MOST_BYTES", 100_000)
    with connect(server) as client:
        client.sendall(POST + b"A: " + b"b" * 100_000)
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                client.sendall(b"b" * 100_000)
    monkeypatch.setattr(lingering, "MOST_SECONDS", 0.05)
    with connect(server) as client:
        client.sendall(POST + b"A: " + b"b" * 100_000)
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                client.sendall(b"b")
                time.sleep(0.005)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    "headers",
    [
        "Host: other.site",
        "A: b" + "\r\nA: b" * 99,
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip",
    ],
)
def test_a_head_that_can_be_read_in_two_ways_ends_its_connection(server, method, headers):
    head = f"{method} /languages HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n"
    smuggled = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = raw(server, head.encode() + b"0\r\n\r\n" + smuggled, until_closed=True)
    assert answer[9:12] in (b"400", b"403") and answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "data",
    [
        b"GET /languages HTTP/1.1\r\n" + CHUNKED + b"1\r\na\r\n",
        b"POST /nowhere HTTP/1.1\r\n" + HEAD + b"Content-Length: 5\r\n\r\n",
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n",
    ],
    ids=range(3),
)
def test_a_body_that_nobody_reads_ends_its_connection(server, data):
    answer = raw(server, data, until_closed=True)
    assert b"connection: close" in answer and answer.count(b"HTTP/1.1 ") == 1


def test_a_body_in_drops_is_given_up(server, monkeypatch):
    """One limit holds for the whole body; the test says when it is over."""
    limits = []

    def timeout(seconds):
        limits.append((seconds, asyncio.timeout(seconds), asyncio.get_running_loop()))
        return limits[-1][1]

    monkeypatch.setattr(requests, "asyncio", SimpleNamespace(timeout=timeout))
    with connect(server) as client:
        client.sendall(POST + b"Content-Length: 500\r\n\r\n")
        eventually(lambda: bool(limits))
        ((seconds, limit, loop),) = limits
        end = limit.when()
        for _ in range(20):
            client.sendall(b" ")
            assert server.get("/health")[0] == 200  # the drop has arrived
        assert len(limits) == 1 and limit.when() == end and seconds == 300
        loop.call_soon_threadsafe(limit.reschedule, 0.0)
        answer = b"".join(iter(lambda: client.recv(1000), b""))  # head and body come apart
    assert b" 408 " in answer and b"within 300 s" in answer


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_request_that_never_ends_is_hung_up_on(impatient, sent):
    assert raw(impatient, sent) == b""


def test_an_answer_that_is_not_read_is_given_up(impatient):
    """The connection of a client that asks and asks and reads nothing is ended."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.connect(("127.0.0.1", impatient.port))
        client.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(3000):
                client.sendall(request)
        eventually(lambda: not impatient.connections)
