"""What training says while it runs: a progress bar or plain lines, `metrics.jsonl`, TensorBoard."""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import tqdm

from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.metrics_log import MetricsLog
from flaxformer_mt.training.board import Board


def perplexity(nll: float) -> float:
    """exp(nll), infinite instead of an overflow when training has just begun or gone wrong."""
    return math.inf if nll > 700 else math.exp(nll)


def duration(seconds: float) -> str:
    """Seconds as `1:02:03`."""
    return str(datetime.timedelta(seconds=round(seconds))) if math.isfinite(seconds) else "?"


# What reports say of the machine and the hour: all else is equal in runs of the same settings.
TIMES = frozenset(
    {
        "src_tokens_per_second",
        "tgt_tokens_per_second",
        "data_wait",
        "seconds_per_step",
        "eta_seconds",
        "training_seconds",
        "mfu",
        "goodput",
    }
)


class Telemetry:
    """Sends each report to the screen, to the metrics log and to TensorBoard.

    On a terminal there is a progress bar with reports above it; elsewhere each report is one plain
    line, so that a log file of a long job stays readable.
    """

    def __init__(
        self,
        *,
        log: MetricsLog,
        tensorboard: Path,
        start: int,
        total: int,
        stream: TextIO | None = None,
    ) -> None:
        # Not a default value: that would be the one of the time when this was imported.
        stream = stream or sys.stderr
        self._log = log
        self._waiting: list[tuple[int, Mapping[str, Any]]] = []  # reports that could not be written
        self._stream = stream
        self._board: Board | None = Board(tensorboard, after=start)  # until it cannot be written
        self._total = total
        self._bar = (
            tqdm.tqdm(total=total, initial=start, unit="step", file=stream, dynamic_ncols=True)
            if stream.isatty()
            else None
        )

    def step(self, nll: float) -> None:
        """One more step, for the bar alone."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"ppl {perplexity(nll):.2f}", refresh=False)
            self._bar.update()

    def message(self, text: str) -> None:
        """A line for the reader that is no measurement."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

    def training(self, step: int, values: Mapping[str, float]) -> None:
        """One training report; the keys are those of `window.Window.report`, and more."""
        self._record("train", step, values)
        mfu = f" · mfu {100 * values['mfu']:.1f}%" if "mfu" in values else ""
        skipped = f" · skipped {values['skipped']:.0f}" if values["skipped"] else ""
        self.message(
            f"step {step:,}/{self._total:,} · epoch {values['epoch']:.2f}"
            f" · loss {values['loss']:.4f} · ppl {values['perplexity']:.2f}"
            f" · lr {values['learning_rate']:.3g} · grad {values['gradient_norm']:.3f}"
            f" · src {values['src_tokens_per_second']:,.0f} tok/s"
            f" · tgt {values['tgt_tokens_per_second']:,.0f} tok/s"
            f" · padding {100 * values['padding']:.1f}%"
            f" · data wait {100 * values['data_wait']:.2f}%"
            f"{mfu}{skipped} · ETA {duration(values['eta_seconds'])}"
        )

    def validation(self, step: int, values: Mapping[str, float], *, best: bool) -> None:
        """One validation report."""
        self._record("valid", step, values)
        scores = {name: value for name, value in values.items() if not name.endswith("_seconds")}
        shown = " · ".join(f"{name} {value:.2f}" for name, value in scores.items())
        self.message(f"validation at step {step:,} · {shown}{' · best so far' if best else ''}")

    def _record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        waited = bool(self._waiting)
        self._waiting.append((step, {"kind": kind, **values}))
        if (failure := self.catch_up()) and not waited:
            self.message(f"{failure}; training goes on, and reports are written when they can be")
        self._show(kind, step, values)

    def _show(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        if self._board is None:
            return
        try:
            self._board.show(step, {f"{kind}/{name}": value for name, value in values.items()})
        except OSError as error:
            # For good: readers stop at the torn record that this has left.
            board, self._board = self._board, None
            board.close()
            self.message(
                f"{board.folder}: cannot be written: {error.strerror}; until the next start "
                "the numbers are in metrics.jsonl alone"
            )

    def catch_up(self) -> str | None:
        """Writes what could not be written before; what went wrong if it still cannot."""
        try:
            self.flush()
        except RunDirectoryError as error:
            return str(error)
        return None

    def flush(self) -> None:
        """Writes what could not be written before. Raises RunDirectoryError if it still cannot."""
        while self._waiting:
            self._log.write(*self._waiting[0])
            del self._waiting[0]

    def rewind(self, step: int) -> None:
        """Forgets what was reported after `step`, from which training goes on once more."""
        self._waiting = [report for report in self._waiting if report[0] <= step]
        self._log.rewind(step)
        if self._board is not None:
            self._board.rewind(step)
        if self._bar is not None:
            self._bar.n = step
            self._bar.refresh()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._board is not None:
            self._board.close()


class Silence(Telemetry):
    """Says and keeps nothing: for all processes of a run but the first, which speaks for them."""

    def __init__(self) -> None:
        pass

    def step(self, nll: float) -> None:
        pass

    def message(self, text: str) -> None:
        pass

    def training(self, step: int, values: Mapping[str, float]) -> None:
        pass

    def validation(self, step: int, values: Mapping[str, float], *, best: bool) -> None:
        pass

    def catch_up(self) -> str | None:
        return None

    def flush(self) -> None:
        pass

    def rewind(self, step: int) -> None:
        pass

    def close(self) -> None:
        pass
