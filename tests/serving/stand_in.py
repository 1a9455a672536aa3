"""A translator that needs no model, and servers over it."""

import contextlib
import copy
import dataclasses
import http.client
import json
import threading
import time
from typing import Any

import numpy as np

from benchmarks.serving.process import ServerProcess
from flaxformer_mt.config import DecodingConfig
from flaxformer_mt.decoding.alignment import Alignment
from flaxformer_mt.decoding.errors import DecodingError, OverlongError
from flaxformer_mt.decoding.teacher_forcing import Attention
from flaxformer_mt.decoding.text.segments import describe_overlong
from flaxformer_mt.decoding.text.translation import Hypothesis, Translation
from flaxformer_mt.serving.served_model import ServedModel
from flaxformer_mt.serving.server import ServerError, TranslationServer, bind
from flaxformer_mt.serving.settings import ServerSettings
from tests.conftest import eventually as eventually

MODEL = ServedModel(
    src_lang="en",
    tgt_lang="de",
    name="Stand-in",
    weights="step 7",
    beam_size=4,
    encoder_layers=2,
    decoder_layers=3,
)
_DIRECTIONS = {
    ("en", "de"): "<2de>",
    ("en", "zh"): "<2zh> <formal>",
    ("de", "en"): "",
    ("fr", "en"): "<fr2en>",
}
_CODES = frozenset({"<2de>", "<2zh>", "<formal>", "<fr2en>", ">>nld<<"})
SEVERAL = dataclasses.replace(MODEL, directions=_DIRECTIONS, codes=_CODES)
LONGEST = 40  # words


def reversed_words(text):
    """The stand-in's language: the same words, backwards and in capitals."""
    return " ".join(reversed(text.upper().split()))


class StandIn:
    """Notes each call; closing `open` holds calls up, and some words break it."""

    heads = 2
    config = DecodingConfig()
    runtime = None

    def __init__(self):
        self.open = threading.Event()
        self.open.set()
        self.calls: list[tuple[list[str], int]] = []
        self.threads: set[int] = set()

    def translate_with(self, lines, options, wanted):
        self._note_call(lines, options.n_best)
        if options.overlong == "refuse":
            _check_lengths(source=lines[0].split())
        translations = []
        for line in lines:
            terms = options.terminology.translations(line) if options.terminology else ()
            allowed = [word for word in line.split() if word not in options.forbid]
            text = " ".join([*terms, " ".join(allowed)])
            translations.append(self._translation(text, options.n_best))
        return translations

    def with_config(self, **settings):
        """The same calls, with other settings."""
        other = copy.copy(self)
        other.config = dataclasses.replace(self.config, **settings)
        return other

    def in_languages(self, src_lang, tgt_lang):
        """The same calls, noted with these languages."""
        other = copy.copy(self)
        other.languages = (src_lang, tgt_lang)
        return other

    def _note_call(self, lines, n_best):
        self.threads.add(threading.get_ident())
        self.calls.append((list(lines), n_best))
        assert self.open.wait(30)
        if any("BROKEN" in line for line in lines):
            raise RuntimeError(" ".join(lines))
        assert not any("\n" in line for line in lines)

    def compile(self, lines, *, n_best=1, longest="", constraint_sizes=()):
        """There is nothing to compile: a shape for every number of words."""
        return frozenset((len(lines), len(line.split())) for line in lines)

    def _translation(self, line, n_best):
        text = reversed_words(line)
        hypotheses = [
            Hypothesis(
                text=f"{text} {rank}" if rank else text,
                tokens=(rank,),
                log_prob=-1.0 - rank,
                score=-0.5 - rank,
            )
            for rank in range(n_best)
        ]
        return Translation(hypotheses=tuple(hypotheses), split=len(line.split()) > LONGEST)

    def align(self, pairs, *, letters=False):
        if any("unalignable" in tgt.lower() for _, tgt in pairs):
            raise DecodingError("too long")
        return [self._alignment(tuple(src.split()), tuple(tgt.split())) for src, tgt in pairs]

    def _alignment(self, src, tgt):
        links = tuple((number, len(src) - 1 - number) for number in range(len(src)))
        return Alignment(src_words=src, tgt_words=tgt, links=links)

    def attend(self, src, tgt):
        self.threads.add(threading.get_ident())
        _check_lengths(source=src.split(), target=tgt.split())
        rows, columns = (*tgt.split(), "</s>"), (*src.split(), "</s>")

        def weights(layers, *shape):
            drawn = np.random.default_rng(1).random((layers, self.heads, *shape), np.float32)
            return drawn / drawn.sum(-1, keepdims=True)

        return Attention(
            src_pieces=columns,
            tgt_pieces=rows,
            tgt_inputs=("<s>", *rows[:-1]),
            encoder=weights(2, len(columns), len(columns)),
            decoder=weights(3, len(rows), len(rows)),
            cross=weights(3, len(rows), len(columns)),
        )


def _check_lengths(**sides):
    if any(len(words) >= LONGEST for words in sides.values()):
        raise OverlongError(0, describe_overlong(LONGEST, **sides))


@dataclasses.dataclass
class Running(ServerProcess):
    """A server in a thread of this process, and a minimal client."""

    server: TranslationServer
    port: int
    said: list[str]
    ended: list[ServerError] = dataclasses.field(default_factory=list)
    thread: threading.Thread | None = None

    @property
    def connections(self):
        return len(self.server.server_state.connections)

    def ask(self, method, path, body=None, headers=None) -> tuple[int, Any, Any]:
        """Status, body (as JSON where it is), headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
        if answer.headers.get_content_type() == "application/json":
            content = json.loads(content)
        return answer.status, content, answer.headers

    def get(self, path, headers=None):
        return self.ask("GET", path, headers=headers)

    def post(self, path, payload, **headers) -> tuple[int, Any]:
        headers = {"content-type": "application/json", **headers}
        return self.ask("POST", path, json.dumps(payload), headers)[:2]

    def translate(self, text, **wanted):
        return self.post("/translate", {"text": text, **wanted})

    def cpu_seconds(self):
        """What the event loop has computed so far: how long it kept others waiting, at most."""
        return time.clock_gettime(time.pthread_getcpuclockid(self.thread.ident))

    def metric(self, line):
        """The value of a metric, named with its labels."""
        return self.metrics().get(line, 0.0)

    def refused(self, reason):
        return self.metric(f'flaxformer_refused_total{{reason="{reason}"}}')

    def errors(self):
        """What was said of errors that no client caused."""
        return [line for line in self.said if line.startswith("error")]


@contextlib.contextmanager
def running(translator, *, model=MODEL, wait=True, **settings):
    """A server over `translator`, on a free port, without a warm-up unless the settings ask."""
    said: list[str] = []
    listener = bind("127.0.0.1", 0)
    server = TranslationServer(
        translator, model, quick(**settings), listener=listener, say=said.append
    )
    # The port first: a server that cannot start closes its listener.
    running = Running(server, listener.getsockname()[1], said)

    def run():
        try:
            server.run_until_stopped()
        except ServerError as error:
            running.ended.append(error)

    running.thread = thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive(), 500)
        assert server.started, said
        while wait and running.get("/health")[1]["status"] == "warming":
            time.sleep(0.005)
        yield running
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive(), said


def quick(**changes):
    return ServerSettings(**{"warm_up_words": 0, "drain_seconds": 5.0, **changes})
