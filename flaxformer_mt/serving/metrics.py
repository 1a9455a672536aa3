"""What a server counts of itself: the values of `GET /metrics`."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax.monitoring
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from flaxformer_mt import __version__
from flaxformer_mt.serving.batching import BatchReport
from flaxformer_mt.serving.model_info import Model

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)

disable_created_metrics()  # a time beside each value, which nobody asks for


class Metrics:
    """Changed in the event loop only; `waiting` tells how many sentences are in the queue."""

    def __init__(self, model: Model, waiting: Callable[[], int]) -> None:
        compiled = watch_compilations()
        self.open_requests = 0
        self._registry = registry = CollectorRegistry()
        histogram = functools.partial(Histogram, registry=registry)
        counter = functools.partial(Counter, registry=registry)
        self.requests = counter(
            "flaxformer_requests_total", "Requests answered.", ["path", "status"]
        )
        self.request_seconds = histogram(
            "flaxformer_request_seconds",
            "From a request's headers to its answer.",
            ["path"],
            buckets=_SECONDS,
        )
        self.refused = counter(
            "flaxformer_refused_total", "Requests not served, by reason.", ["reason"]
        )
        self.sentences = counter("flaxformer_sentences_total", "Sentences accepted.")
        self.characters = counter("flaxformer_characters_total", "Characters accepted.")
        self._batch_sentences = histogram(
            "flaxformer_batch_sentences",
            "Sentences that the model computed together.",
            buckets=_SENTENCES,
        )
        self._batch_requests = histogram(
            "flaxformer_batch_requests",
            "Requests that shared a computation of the model.",
            buckets=_SENTENCES,
        )
        self._batch_seconds = histogram(
            "flaxformer_batch_seconds", "What one computation took.", buckets=_SECONDS
        )
        self._failed_batches = counter(
            "flaxformer_failed_batches_total", "Computations that raised an error."
        )

        def gauge(name: str, help: str, read: Callable[[], float]) -> None:
            Gauge(name, help, registry=registry).set_function(read)

        gauge("flaxformer_waiting_sentences", "Sentences in the queue.", waiting)
        gauge("flaxformer_open_requests", "Being answered.", lambda: self.open_requests)
        gauge(
            "flaxformer_compiled_programs",
            "Programs compiled, or read from the cache, since the process began.",
            lambda: compiled["programs"],
        )
        Info("flaxformer", "What is served.", registry=registry).info(
            {
                "version": __version__,
                "weights": model.weights,
                "source": model.src_lang,
                "target": model.tgt_lang,
            }
        )
        ProcessCollector(registry=registry)

    def batch(self, report: BatchReport) -> None:
        self._batch_sentences.observe(report.items)
        self._batch_requests.observe(report.requests)
        self._batch_seconds.observe(report.seconds)
        if report.error is not None:
            self._failed_batches.inc()

    def text(self) -> bytes:
        """In Prometheus' text format 0.0.4."""
        return generate_latest(self._registry)


@functools.cache
def watch_compilations() -> dict[str, int]:
    """Counts this process's compilations from now on, under "programs"."""
    seen = {"programs": 0}

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen["programs"] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    return seen
