"""Sums over the steps between two reports."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from flaxformer_mt.training.telemetry import perplexity


class Window:
    """What a training report is made of. Time in which no step was under way is left out."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._start = time.perf_counter()
        self._steps = 0
        self._loss = self._nll = self._src = self._tgt = self._positions = 0.0
        self._waited = 0.0
        self._last: Mapping[str, np.ndarray] = {}

    def add(self, metrics: Mapping[str, np.ndarray], *, positions: int) -> None:
        """One step's metrics, and the source and target positions of its batch."""
        tokens = float(metrics["tgt_tokens"])
        if metrics["bad_run"] == 0:
            self._loss += float(metrics["loss"]) * tokens
            self._nll += float(metrics["nll"]) * tokens
            self._tgt += tokens
            self._src += float(metrics["src_tokens"])
            self._positions += positions
        self._steps += 1
        self._last = metrics

    def waited(self, seconds: float) -> None:
        """Time for which the next batch was not ready."""
        self._waited += seconds

    def pause(self, seconds: float) -> None:
        """Leaves out time spent on validation or on a checkpoint."""
        self._start += seconds

    @property
    def steps(self) -> int:
        return self._steps

    def report(self, *, epoch: float, steps_left: int) -> dict[str, float]:
        """The window's report (loss per target token in nats, rates per second), and a new window."""
        seconds = time.perf_counter() - self._start
        tokens = max(self._tgt, 1.0)
        values = {
            "epoch": epoch,
            "loss": self._loss / tokens,
            "perplexity": perplexity(self._nll / tokens),
            "learning_rate": float(self._last["learning_rate"]),
            "gradient_norm": float(self._last["gradient_norm"]),
            "src_tokens_per_second": self._src / seconds,
            "tgt_tokens_per_second": self._tgt / seconds,
            "padding": 1 - (self._src + self._tgt) / max(self._positions, 1.0),
            "data_wait": self._waited / seconds,
            "skipped": float(self._last["skipped"]),
            "seconds_per_step": seconds / self._steps,
            "eta_seconds": steps_left * seconds / self._steps,
        }
        self._reset()
        return values
