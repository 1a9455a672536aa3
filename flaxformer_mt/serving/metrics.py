"""What a server counts of itself: the values of `GET /metrics`."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path

import jax.monitoring

from flaxformer_mt import __version__
from flaxformer_mt.serving.batching import BatchReport
from flaxformer_mt.serving.instruments import Counter, Gauge, Histogram
from flaxformer_mt.serving.model_info import Model

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Changed in the event loop only."""

    def __init__(self, model: Model, waiting: Callable[[], int]) -> None:
        compiled = watch_compilations()
        self.open_requests = 0
        self.requests = Counter(
            "flaxformer_requests_total", "Requests answered.", labels=("path", "status")
        )
        self.request_seconds = Histogram(
            "flaxformer_request_seconds",
            "From a request's headers to its answer.",
            bounds=_SECONDS,
            labels=("path",),
        )
        self.refused = Counter(
            "flaxformer_refused_total", "Requests not served, by reason.", labels=("reason",)
        )
        self.sentences = Counter("flaxformer_sentences_total", "Sentences accepted.")
        self.characters = Counter("flaxformer_characters_total", "Characters accepted.")
        self.batch_items = Histogram(
            "flaxformer_batch_sentences",
            "Sentences that the model computed together.",
            bounds=_SENTENCES,
        )
        self.batch_requests = Histogram(
            "flaxformer_batch_requests",
            "Requests that shared a computation of the model.",
            bounds=_SENTENCES,
        )
        self.batch_seconds = Histogram(
            "flaxformer_batch_seconds", "What one computation took.", bounds=_SECONDS
        )
        self.failed_batches = Counter(
            "flaxformer_failed_batches_total", "Computations that raised an error."
        )
        about = {
            "version": __version__,
            "weights": model.weights,
            "source": model.src_lang,
            "target": model.tgt_lang,
        }
        started = time.time()
        self._gauges = [
            Gauge("flaxformer_waiting_sentences", "Sentences in the queue.", waiting),
            Gauge("flaxformer_open_requests", "Being answered.", lambda: self.open_requests),
            Gauge(
                "flaxformer_compiled_programs",
                "Programs compiled, or read from the cache, since the process began.",
                lambda: compiled["programs"],
            ),
            Gauge("flaxformer_info", "What is served.", lambda: 1, about),
            Gauge("process_start_time_seconds", "When it began.", lambda: started),
        ]
        if resident_bytes() is not None:
            self._gauges.append(
                Gauge(
                    "process_resident_memory_bytes",
                    "Resident memory.",
                    lambda: resident_bytes() or 0,
                )
            )

    def batch(self, report: BatchReport) -> None:
        self.batch_items.observe(report.items)
        self.batch_requests.observe(report.requests)
        self.batch_seconds.observe(report.seconds)
        if report.error is not None:
            self.failed_batches.add()

    def text(self) -> str:
        own = [value for value in vars(self).values() if isinstance(value, Counter | Histogram)]
        return "".join(f"{line}\n" for each in (*own, *self._gauges) for line in each.lines())


@functools.cache
def watch_compilations() -> dict[str, int]:
    """Counts this process's compilations from now on, under "programs"."""
    seen = {"programs": 0}

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen["programs"] += 1

    jax.monitoring.register_event_duration_secs_listener(listen)
    return seen


def resident_bytes() -> int | None:
    """This process's resident memory; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
