"""What a server counts of itself: the values of `GET /metrics`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.monitoring
import prometheus_client as prometheus

from flaxformer_mt import __version__
from flaxformer_mt.serving.model_info import Model

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)

prometheus.disable_created_metrics()  # a time beside each value, which nobody asks for


class Metrics:
    """Changed in the event loop only; `waiting` tells how many sentences are in the queue."""

    def __init__(self, model: Model, waiting: Callable[[], int]) -> None:
        compiled = watch_compilations()
        self.open_requests = 0
        self._registry = registry = prometheus.CollectorRegistry()
        ours: dict[str, Any] = {"registry": registry, "namespace": "flaxformer"}
        counter: Any = functools.partial(prometheus.Counter, **ours)
        histogram: Callable[..., prometheus.Histogram] = functools.partial(
            prometheus.Histogram, **ours, buckets=_SECONDS
        )
        self.requests = counter("requests_total", "Requests answered.", ["path", "status"])
        self.request_seconds = histogram(
            "request_seconds", "From a request's headers to its answer.", ["path"]
        )
        self.refused = counter("refused_total", "Requests not served, by reason.", ["reason"])
        self.sentences = counter("sentences_total", "Sentences accepted.")
        self.characters = counter("characters_total", "Characters accepted.")
        what = "Sentences that the model computed together."
        self._batch_sentences = histogram("batch_sentences", what, buckets=_SENTENCES)
        what = "Requests that shared a computation of the model."
        self._batch_requests = histogram("batch_requests", what, buckets=_SENTENCES)
        self._batch_seconds = histogram("batch_seconds", "What one computation took.")
        self._failed_batches = counter("failed_batches_total", "Computations that raised an error.")
        for name, what, read in (
            ("waiting_sentences", "Sentences in the queue.", waiting),
            ("open_requests", "Being answered.", lambda: self.open_requests),
            (
                "compiled_programs",
                "Programs compiled, or read from the cache, since the process began.",
                lambda: compiled["programs"],
            ),
        ):
            prometheus.Gauge(name, what, **ours).set_function(read)
        served = {"version": __version__, "weights": model.weights}
        served |= {"source": model.src_lang, "target": model.tgt_lang}
        prometheus.Info("flaxformer", "What is served.", registry=registry).info(served)
        prometheus.ProcessCollector(registry=registry)

    def batch(self, sentences: int, requests: int, seconds: float, *, failed: bool) -> None:
        self._batch_sentences.observe(sentences)
        self._batch_requests.observe(requests)
        self._batch_seconds.observe(seconds)
        self._failed_batches.inc(failed)

    def text(self) -> bytes:
        """In Prometheus' text format 0.0.4."""
        return prometheus.generate_latest(self._registry)


@functools.cache
def watch_compilations() -> dict[str, int]:
    """Counts this process's compilations from now on, under "programs"."""
    seen = {"programs": 0}

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen["programs"] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    return seen
