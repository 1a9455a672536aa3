"""Runs the model for requests: queue, timeouts, cancellation, health, metrics."""

import asyncio
import contextlib
import functools
import time
import traceback
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import prometheus_client as prometheus
from starlette.requests import Request

from flaxformer_mt import __version__
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.parallel.compile_cache import watch_compilations
from flaxformer_mt.serving.access import Refusal, too_large, unavailable
from flaxformer_mt.serving.answers import State
from flaxformer_mt.serving.batching import Batcher
from flaxformer_mt.serving.engine import (
    ATTENTION,
    Attended,
    Engine,
    QueuedSentence,
    Translated,
    warm_up,
)
from flaxformer_mt.serving.requests import AttentionRequest, Reader, TranslateTask
from flaxformer_mt.serving.results import FileResults
from flaxformer_mt.serving.served_model import ServedModel
from flaxformer_mt.serving.settings import ServerSettings

_FAILING_AFTER = 3  # batches in a row
# Seconds after the last of them: without requests a server wouldn't learn that it has recovered.
_FAILING_FOR = 60.0
_QUEUE_SECONDS = 0.5  # between a file's attempts to get into a full queue
_FILE_RETRY = 10  # seconds
_TOLD_WITHIN = 1.0  # seconds for abandoned requests to get their 503 at the end
_T = TypeVar("_T")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)

prometheus.disable_created_metrics()  # a time beside each value


class Service:
    """Takes checked requests, returns results or raises Refusal. `say` gets lines for the operator;
    `failed` gets the reason if the model can't be used: the server should then end."""

    def __init__(
        self,
        translator: Translator,
        model: ServedModel,
        settings: ServerSettings,
        *,
        say: Callable[[str], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self.model, self.settings, self.say = model, settings, say
        self.reader = Reader(model, settings)
        self.engine = Engine(
            translator,
            widest=self.reader.most_hypotheses,
            largest=settings.batch_sentences,
            diverse=model.diverse,
        )
        self.batcher = Batcher(
            self.engine.run,
            take=self.engine.take,
            capacity=settings.waiting_sentences,
            prepare=lambda: next(self._warm_up, False),
            prepared=lambda: say("warm"),
            failed=failed,
            report=self._report,
        )
        self.metrics = Metrics(model, lambda: self.batcher.waiting)
        self.results = FileResults()
        self.warmed = (0, 0)  # steps done, of how many
        self._warm_up = warm_up(
            self.engine,
            words=settings.warm_up_words,
            progress=self._progress,
            constraints=settings.constraints,
        )
        self._files = 0  # being translated
        self._stopping = False
        self._deadline = 0.0
        self.hurried = asyncio.Event()  # set, `stop` waits no longer
        self._failures = 0  # batches in a row
        self._last_failure = 0.0

    @property
    def state(self) -> State:
        if self._stopping:
            return "stopping"
        recent = time.monotonic() - self._last_failure < _FAILING_FOR
        if self._failures >= _FAILING_AFTER and recent:
            return "failing"
        return "ok" if self.batcher.warm else "warming"

    def start(self) -> None:
        self.batcher.start()
        self.say("ready")

    def begin_stop(self) -> None:
        """Gives accepted requests `drain_seconds` from now."""
        if not self._stopping:
            self._stopping = True
            self._deadline = time.monotonic() + self.settings.drain_seconds

    async def stop(self) -> None:
        """Returns when all accepted requests have their answers, or time is over. It doesn't wait
        for a model that only warms up, or that hangs: its thread can't be interrupted."""
        self.begin_stop()
        only_preparing = self.batcher.only_preparing
        seconds = 0.0 if only_preparing else max(0.0, self._deadline - time.monotonic())
        closed, _ = await _until_one(self.batcher.close(), self.hurried.wait(), seconds)
        if closed is None and not only_preparing:
            self.say("stopping while the model is still working")

        deadline = time.monotonic() + _TOLD_WITHIN
        while (
            self.metrics.open_requests and time.monotonic() < deadline and not self.hurried.is_set()
        ):
            await asyncio.sleep(0.01)

    async def translate(self, task: TranslateTask) -> list[list[Translated]]:
        key, sentences = self._queued(task)
        translated = iter(await self._submitted(key, sentences))
        return [[next(translated) for _ in text.texts] for text in task.texts]

    async def translate_file(self, task: TranslateTask) -> list[list[Translated]]:
        """As `translate`, a few sentences after others: requests of others come between them, and
        those that aren't begun are never translated if the client leaves."""
        key, sentences = self._queued(task)
        size = min(4 * self.settings.batch_sentences, self.settings.waiting_sentences)
        done: list[Translated] = []
        while len(done) < len(sentences):
            try:
                done += await self._submitted(key, sentences[len(done) : len(done) + size])
            except Refusal as refusal:
                if refusal.reason != "queue":
                    raise
                await asyncio.sleep(_QUEUE_SECONDS)
        translated = iter(done)
        return [[next(translated) for _ in text.texts] for text in task.texts]

    @contextlib.contextmanager
    def one_file(self) -> Iterator[None]:
        """Holds the place of a file, which takes memory while it is read and translated. Raises
        Refusal if there are no more."""
        if self._files >= self.settings.files_at_once:
            raise unavailable(
                f"other files are being translated; try again in {_FILE_RETRY} s",
                retry_after=_FILE_RETRY,
                reason="files",
            )
        self._files += 1
        try:
            yield
        finally:
            self._files -= 1

    def _queued(self, task: TranslateTask) -> tuple[Any, list[QueuedSentence]]:
        """The sentences of a task, and what they have in common."""
        form = task.form
        languages = None if task.direction == self.model.first else task.direction
        sentences = [
            QueuedSentence(
                sentence,
                aligned,
                # An answer has the alignment of words.
                letters=bool(task.documents) and not form.alignment,
                code=code,
                languages=languages,
            )
            for text, aligned in zip(task.texts, task.aligned, strict=True)
            for sentence, code in zip(text.texts, text.codes, strict=True)
        ]
        return self.engine.key_of(task.n_best, form.terms, form.forbid, keep=task.keep), sentences

    async def _submitted(self, key: Any, sentences: list[QueuedSentence]) -> list[Translated]:
        submitted = self.batcher.submit(key, sentences)
        self.metrics.sentences.inc(len(sentences))
        self.metrics.characters.inc(sum(len(sentence.text) for sentence in sentences))
        return await submitted

    async def attend(self, request: AttentionRequest) -> Attended:
        attended: Attended
        (attended,) = await self.batcher.submit(ATTENTION, [request])
        _, picked = attended
        heads, rows, columns = picked.weights.shape
        most = self.settings.max_attention_weights
        if picked.weights.size > most:
            raise too_large(
                f"{rows} x {columns} tokens with {heads} heads have {picked.weights.size} weights; "
                f"at most {most} per request"
            )
        return attended

    async def within_limits(
        self, request: Request, work: Coroutine[Any, Any, _T], *, is_file: bool = False
    ) -> _T:
        """Work for a client, abandoned when it takes too long or the client leaves."""
        seconds = self.settings.file_seconds if is_file else self.settings.seconds
        done, gone = await _until_one(work, _disconnected(request), seconds)
        if done is not None:
            return done.result()
        if gone is not None:
            raise Refusal(499, "the client disconnected", reason="gone")
        raise unavailable(
            f"no answer within {seconds:g} s: the server is busy", retry_after=5, reason="time"
        )

    def explain(self, error: Exception) -> str:
        """Tells the operator about an error that no client caused; returns its id.

        An error's message may quote a text, so it is shown only if texts may be logged.
        """
        number = uuid.uuid4().hex[:12]
        trace = "".join(_trace(error, texts=self.settings.log == "text"))
        self.say(f"error {number}\n{trace}".rstrip("\n"))
        return number

    def _progress(self, done: int, count: int, what: str) -> None:
        self.warmed = (done, count)
        self.say(f"warming up {done} of {count}: {what}")

    def _report(self, items: int, requests: int, seconds: float, error: Exception | None) -> None:
        if not isinstance(error, Refusal):
            self._failures = 0 if error is None else self._failures + 1
            self._last_failure = time.monotonic()
        self.metrics.batch_sentences.observe(items)
        self.metrics.batch_requests.observe(requests)
        self.metrics.batch_seconds.observe(seconds)
        self.metrics.failed_batches.inc(error is not None)


async def _until_one(
    work: Coroutine[Any, Any, _T], other: Coroutine[Any, Any, Any], seconds: float
) -> tuple[asyncio.Task[_T] | None, asyncio.Task[Any] | None]:
    """The tasks that are done once one is or `seconds` are over; the other is cancelled."""
    tasks = asyncio.create_task(work), asyncio.create_task(other)
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        first, second = tasks
        return first if first.done() else None, second if second.done() else None
    finally:
        for task in tasks:
            task.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _trace(error: BaseException, *, texts: bool) -> Iterator[str]:
    """Where an error and its causes were raised and, if `texts`, what they say: escaped."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield from _trace(cause, texts=texts)
        yield "caused by\n"
    yield from traceback.format_tb(error.__traceback__)
    message = repr(str(error)) if texts else "(--log text shows the message)"
    yield f"{type(error).__name__} {message}\n"


class Metrics:
    """The metrics of `GET /metrics`; `waiting` gives the number of sentences in the queue."""

    def __init__(self, model: ServedModel, waiting: Callable[[], int]) -> None:
        compiled = watch_compilations()
        self.open_requests = 0
        self._registry = registry = prometheus.CollectorRegistry()
        shared: dict[str, Any] = {"registry": registry, "namespace": "flaxformer"}
        counter: Any = functools.partial(prometheus.Counter, **shared)
        histogram: Callable[..., prometheus.Histogram] = functools.partial(
            prometheus.Histogram, **shared, buckets=_SECONDS
        )
        self.requests = counter("requests_total", "Requests answered.", ["path", "status"])
        self.request_seconds = histogram(
            "request_seconds", "Time from a request's headers to its answer.", ["path"]
        )
        self.refused = counter("refused_total", "Requests not served, by reason.", ["reason"])
        self.sentences = counter("sentences_total", "Sentences accepted.")
        self.characters = counter("characters_total", "Characters accepted.")
        sizes = functools.partial(histogram, buckets=_SENTENCES)
        self.batch_sentences = sizes("batch_sentences", "Sentences per model batch.")
        self.batch_requests = sizes("batch_requests", "Requests per model batch.")
        self.batch_seconds = histogram("batch_seconds", "Time per model batch.")
        self.failed_batches = counter("failed_batches_total", "Model batches that failed.")

        def gauge(name: str, documentation: str, read: Callable[[], int]) -> None:
            prometheus.Gauge(name, documentation, **shared).set_function(read)

        gauge("waiting_sentences", "Sentences waiting in the queue.", waiting)
        gauge("open_requests", "Requests being answered.", lambda: self.open_requests)
        gauge(
            "compiled_programs",
            "Programs compiled or read from the cache since start.",
            lambda: compiled.programs,
        )
        served = {
            "version": __version__,
            "weights": model.weights,
            "source": ",".join(model.sources),
            "target": ",".join(model.targets),
        }
        prometheus.Info("flaxformer", "The served model.", registry=registry).info(served)
        prometheus.ProcessCollector(registry=registry)

    def text(self) -> bytes:
        return prometheus.generate_latest(self._registry)
