"""Requests that are broken on purpose: by hand and by chance, from a seed."""

import concurrent.futures
import dataclasses
import json
import random
import socket
import time
from collections import Counter
from typing import Any

from benchmarks.serving.process import ServerProcess

_PATHS = ("/translate", "/detect", "/attention", "/languages", "/", "/nowhere", "/page/../app.py")
_KINDS = (
    *("application/json", "application/x-www-form-urlencoded", "text/plain", "\xff", ""),
    "multipart/form-data; boundary=a",
)
_PLAIN = (
    {"text": "a dog runs home ."},
    {"text": ["a", "b c"], "n_best": 2, "alignment": True},
    {"q": "a dog", "source": "en", "target": "de", "alternatives": 1},
    {"text": "a dog", "kind": "cross", "layer": 0},
)
_ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**63, 10**400, 1e308, -0.0, "", "\x00", "\ud800", "é" * 50, "\u202e"),
    *([], {}, [[]], [None], {"a": {}}, "a" * 6000, ["a"] * 100, "\n" * 3000, "😀" * 2000),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """How many requests ended how: a status, "closed" without an answer, or "hung"."""

    statuses: Counter[str]
    slowest: float  # seconds

    @property
    def errors(self) -> int:
        """Answers that blame the server; 503 says that it is busy."""
        return sum(
            count for status, count in self.statuses.items() if status[0] == "5" and status != "503"
        )


def attack(
    server: ServerProcess, *, requests: int, seed: int, clients: int = 16, patience: float = 60.0
) -> Outcome:
    """`requests` broken requests, each on a connection of its own."""
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        jobs = [
            pool.submit(_one, server.port, broken(random.Random(f"{seed} {number}")), patience)
            for number in range(requests)
        ]
        ended = [job.result() for job in jobs]
    return Outcome(
        statuses=Counter(status for status, _ in ended),
        slowest=max(seconds for _, seconds in ended),
    )


def broken(chance: random.Random) -> tuple[bytes, bool]:
    """A request's bytes, and whether the client goes away at once after sending them."""
    body = _body(chance)
    kind = chance.choices(_KINDS, weights=(12, 4, 1, 1, 1, 2))[0]
    path = chance.choices(_PATHS, weights=(12, 3, 6, 1, 1, 1, 1))[0]
    method = chance.choices(("POST", "GET", "PUT", "XXXX"), weights=(20, 2, 1, 1))[0]
    length = chance.choices((len(body), len(body) // 2, 10**12, -1), weights=(40, 2, 1, 1))[0]
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    head += f"Content-Length: {length}\r\nConnection: close\r\n\r\n"
    request = head.encode("latin-1") + body
    match chance.randrange(20):
        case 0:  # cut off
            request = request[: chance.randrange(len(request))]
        case 1:  # some bytes changed, anywhere
            damaged = bytearray(request)
            for _ in range(chance.randrange(1, 9)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            request = bytes(damaged)
        case 2:
            request = chance.randbytes(chance.randrange(1, 2000)) + b"\r\n\r\n"
    return request, chance.random() < 0.1


def _body(chance: random.Random) -> bytes:
    payload: Any = dict(chance.choice(_PLAIN))
    match chance.randrange(8):
        case 0:
            depth = chance.randrange(1, 50_000)
            return b'{"text":' + b"[" * depth + b"]" * chance.choice((depth, 0)) + b"}"
        case 1:
            return chance.randbytes(chance.randrange(400))
        case 2:
            return b" " * chance.randrange(300_000)
        case 3:
            return json.dumps(chance.choice(_ODD)).encode()
    for _ in range(chance.randrange(3)):
        key = chance.choice([*payload, "text", "q", "api_key", "format", "unknown", "\x00" * 99])
        payload[key] = chance.choice(_ODD)
    text = json.dumps(payload, ensure_ascii=chance.random() < 0.5)
    body = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.2:
        place = chance.randrange(len(body) + 1)
        body = body[:place] + chance.randbytes(3) + body[place:]
    return body


def _one(port: int, request: tuple[bytes, bool], patience: float) -> tuple[str, float]:
    content, leaves = request
    begin = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=patience) as client:
            client.sendall(content)
            if leaves:
                return "left", 0.0
            answer = client.recv(65536)
    except TimeoutError:
        return "hung", time.perf_counter() - begin
    except OSError:
        answer = b""  # hung up on while sending
    status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "closed"
    return status, time.perf_counter() - begin
