"""Sums over the steps between two reports."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping

import numpy as np

from flaxformer_mt.training.telemetry import perplexity
from flaxformer_mt.training.utilization import Utilization


@dataclasses.dataclass(kw_only=True)
class Sums:
    """What a window has taken in: plain numbers, kept in a checkpoint.

    `scored` counts the target tokens behind `loss` and `nll`, those of skipped updates left out;
    `seconds` is the time already spent when the window was last put down.
    """

    steps: int = 0
    loss: float = 0.0
    nll: float = 0.0
    scored: float = 0.0
    src_tokens: float = 0.0
    tgt_tokens: float = 0.0
    sentences: float = 0.0
    positions: float = 0.0
    waited: float = 0.0
    seconds: float = 0.0


class Window:
    """What a training report is made of. Time in which no step was under way is left out.

    A window goes on from the `Sums` of a stopped run's, so that a report does not depend on where
    the run was stopped.
    """

    def __init__(self, sums: Sums | None = None, utilization: Utilization | None = None) -> None:
        self._sums = Sums() if sums is None else dataclasses.replace(sums)
        self._start = time.perf_counter() - self._sums.seconds
        self._utilization = utilization
        self._last: Mapping[str, np.ndarray] = {}

    @property
    def sums(self) -> Sums:
        """A copy of the sums as they stand now."""
        return dataclasses.replace(self._sums, seconds=time.perf_counter() - self._start)

    def add(self, metrics: Mapping[str, np.ndarray], *, positions: int) -> None:
        """One step's metrics, and the source and target positions of its batch."""
        sums, tokens = self._sums, float(metrics["tgt_tokens"])
        if metrics["bad_run"] == 0:
            sums.loss += float(metrics["loss"]) * tokens
            sums.nll += float(metrics["nll"]) * tokens
            sums.scored += tokens
        sums.tgt_tokens += tokens
        sums.src_tokens += float(metrics["src_tokens"])
        sums.sentences += float(metrics["sentences"])
        sums.positions += positions
        sums.steps += 1
        self._last = metrics

    def waited(self, seconds: float) -> None:
        """Time for which the next batch was not ready."""
        self._sums.waited += seconds

    def pause(self, seconds: float) -> None:
        """Leaves out time spent on validation or on a checkpoint."""
        self._start += seconds

    def report(self, *, epoch: float, steps_left: int) -> dict[str, float]:
        """The report of one or more steps, and a new window.

        Losses are nats a target token, NaN where every update was skipped; rates are per second,
        shares lie in [0, 1]. `mfu` is left out where no peak is known.
        """
        sums = self.sums
        scored = sums.scored or math.nan
        values = {
            "epoch": epoch,
            "loss": sums.loss / scored,
            "perplexity": perplexity(sums.nll / scored),
            "learning_rate": float(self._last["learning_rate"]),
            "gradient_norm": float(self._last["gradient_norm"]),
            "src_tokens_per_second": sums.src_tokens / sums.seconds,
            "tgt_tokens_per_second": sums.tgt_tokens / sums.seconds,
            "padding": 1 - (sums.src_tokens + sums.tgt_tokens) / sums.positions,
            "data_wait": sums.waited / sums.seconds,
            "skipped": float(self._last["skipped"]),
            "seconds_per_step": sums.seconds / sums.steps,
            "eta_seconds": steps_left * sums.seconds / sums.steps,
        }
        if self._utilization is not None and sums.sentences:
            values["mfu"] = self._utilization.share(
                src_tokens=sums.src_tokens,
                tgt_tokens=sums.tgt_tokens,
                sentences=sums.sentences,
                seconds=sums.seconds,
            )
        self._sums, self._start = Sums(), time.perf_counter()
        return values
