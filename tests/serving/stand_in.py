"""A translator that needs no model, and servers over it."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.batches import DecodingError
from flaxformer_mt.decoding.segments import Overlong, OverlongError, describe_overlong
from flaxformer_mt.decoding.teacher_forcing import Attention
from flaxformer_mt.decoding.translation import Hypothesis, Translation
from flaxformer_mt.serving.model_info import Model
from flaxformer_mt.serving.server import ServerError, TranslationServer, bind
from flaxformer_mt.serving.settings import ServerSettings

MODEL = Model(
    src_lang="en",
    tgt_lang="de",
    name="Stand-in",
    weights="step 7",
    beam_size=4,
    encoder_layers=2,
    decoder_layers=3,
)
LONGEST = 40  # words


def reversed_words(text: str) -> str:
    """The stand-in's language: the same words, backwards and in capitals."""
    return " ".join(reversed(text.upper().split()))


class StandIn:
    """Each call is noted; `open` holds it up, `seconds` is what it takes, some words break it."""

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.open = threading.Event()
        self.open.set()
        self.calls: list[tuple[list[str], int]] = []
        self.threads: set[int] = set()

    def translate(
        self, lines: Sequence[str], *, n_best: int = 1, overlong: Overlong = "split"
    ) -> list[Translation]:
        self.threads.add(threading.get_ident())
        self.calls.append((list(lines), n_best))
        assert self.open.wait(30)
        time.sleep(self.seconds)
        if any("BROKEN" in line for line in lines):
            raise RuntimeError(" ".join(lines))
        assert not any("\n" in line for line in lines)
        if overlong == "refuse":
            _check_lengths(source=lines[0].split())
        return [self._translation(line, n_best) for line in lines]

    def compile(
        self, lines: Sequence[str], *, n_best: int = 1, longest: str = ""
    ) -> frozenset[tuple[int, int]]:
        """There is nothing to compile: a shape for every number of words."""
        return frozenset((len(lines), len(line.split())) for line in lines)

    def _translation(self, line: str, n_best: int) -> Translation:
        text = reversed_words(line)
        hypotheses = [
            Hypothesis(
                text=text if rank == 0 else f"{text} {rank}",
                tokens=(rank,),
                log_prob=-1.0 - rank,
                score=-0.5 - rank,
            )
            for rank in range(n_best)
        ]
        return Translation(hypotheses=tuple(hypotheses), split=len(line.split()) > LONGEST)

    def align(self, pairs: Sequence[tuple[str, str]]) -> list[Alignment]:
        for _, tgt in pairs:
            if "unalignable" in tgt.lower():
                raise DecodingError("too long")
        return [self._alignment(src.split(), tgt.split()) for src, tgt in pairs]

    def _alignment(self, src: list[str], tgt: list[str]) -> Alignment:
        links = [(number, len(src) - 1 - number) for number in range(len(src))]
        return Alignment(src_words=tuple(src), tgt_words=tuple(tgt), links=tuple(links))

    def attend(self, src: str, tgt: str) -> Attention:
        self.threads.add(threading.get_ident())
        _check_lengths(source=src.split(), target=tgt.split())
        rows, columns = (*tgt.split(), "</s>"), (*src.split(), "</s>")

        def weights(layers: int, *shape: int) -> Any:
            heads = np.random.default_rng(1).random((layers, 2, *shape), np.float32)
            return heads / heads.sum(-1, keepdims=True)

        return Attention(
            src_pieces=columns,
            tgt_pieces=rows,
            tgt_inputs=("<s>", *rows[:-1]),
            encoder=weights(2, len(columns), len(columns)),
            decoder=weights(3, len(rows), len(rows)),
            cross=weights(3, len(rows), len(columns)),
        )


def _check_lengths(**sides: Sequence[str]) -> None:
    if any(len(words) >= LONGEST for words in sides.values()):
        raise OverlongError(0, describe_overlong(LONGEST, **sides))


@dataclasses.dataclass
class Running:
    """A server in a thread of this process, and the least of a client."""

    server: TranslationServer
    port: int
    said: list[str]
    ended: list[ServerError]
    thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Status, body (as JSON where it is), headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.headers.get_content_type() == "application/json":
            return answer.status, json.loads(content), answer.headers
        return answer.status, content, answer.headers

    def post(self, path: str, payload: Any, **headers: str) -> tuple[int, Any]:
        headers = {"content-type": "application/json", **headers}
        status, answer, _ = self.ask("POST", path, json.dumps(payload), headers)
        return status, answer

    def cpu_seconds(self) -> float:
        """What the event loop has computed so far: how long it kept others waiting, at most."""
        assert self.thread is not None and self.thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self.thread.ident))

    def metric(self, line: str) -> float:
        """The value of a metric, named with its labels."""
        for each in self.ask("GET", "/metrics")[1].decode().splitlines():
            name, _, value = each.rpartition(" ")
            if name == line:
                return float(value)
        return 0.0


@contextlib.contextmanager
def running(
    translator: Any,
    settings: ServerSettings | None = None,
    *,
    model: Model = MODEL,
    wait: bool = True,
) -> Iterator[Running]:
    """A server over `translator`, on a free port, without a warm-up unless the settings ask."""
    settings = settings or quick()
    said: list[str] = []
    listener = bind("127.0.0.1", 0)
    server = TranslationServer(translator, model, settings, listener=listener, say=said.append)
    ended: list[ServerError] = []

    def run() -> None:
        try:
            server.run_until_stopped()
        except ServerError as error:
            ended.append(error)

    # The port first: a server that cannot start closes its listener.
    running = Running(server, listener.getsockname()[1], said, ended)
    running.thread = thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), said
            time.sleep(0.005)
        while wait and running.ask("GET", "/health")[0] != 200:
            time.sleep(0.005)
        yield running
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive(), said


def quick(**changes: Any) -> ServerSettings:
    return ServerSettings(**{"warm_up_words": 0, "drain_seconds": 5.0, **changes})


def eventually(condition: Any, seconds: float = 60.0) -> None:
    """Waits for what another thread is about to do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
