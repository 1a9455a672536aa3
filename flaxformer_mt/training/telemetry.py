"""Training's output: a progress bar or plain lines, `metrics.jsonl`, trackers."""

import contextlib
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import tqdm

from flaxformer_mt.config import TrainingConfig
from flaxformer_mt.rundir import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.metrics_log import MetricsLog, lost_after, read_metrics
from flaxformer_mt.training.instruments import Utilization, duration
from flaxformer_mt.training.trackers import Sample, Trackers, as_text

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


def perplexity(nll: float) -> float:
    """exp(nll), infinite instead of an overflow when training has just begun or gone wrong."""
    return math.inf if nll > 700 else math.exp(nll)


@dataclasses.dataclass(kw_only=True)
class Sums:
    """What a window has taken in: plain numbers, kept in a checkpoint."""

    steps: int = 0
    loss: float = 0.0
    nll: float = 0.0
    scored: float = 0.0  # target tokens behind `loss` and `nll`: without skipped updates
    src_tokens: float = 0.0
    tgt_tokens: float = 0.0
    sentences: float = 0.0
    positions: float = 0.0
    waited: float = 0.0
    seconds: float = 0.0  # spent when the window was last put down


class Window:
    """What a training report is made of. Time in which no step was under way is left out, and
    that of compiling one.

    It continues from the `Sums` of a stopped run, so that reports don't depend on where that was.
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

    @property
    def perplexity(self) -> float:
        """Of the steps so far: after the last of them what the report says."""
        return perplexity(self._sums.nll / (self._sums.scored or math.nan))

    def left_out(self, seconds: float) -> None:
        """Time in which a step was compiled, and not done."""
        self._start += seconds

    def waited(self, seconds: float) -> None:
        """Time for which the next batch was not ready."""
        self._sums.waited += seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out the time of the body: a validation or a checkpoint."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._start += time.perf_counter() - start

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
            "perplexity": self.perplexity,
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


# Called with what a line of `metrics.jsonl` is made of.
Report = Callable[[Mapping[str, Any]], object]


class Telemetry:
    """Sends each report to the screen, to the metrics log, to `trackers` and to who is `told`.

    Samples of validation's translations go to the folder `samples` and to the trackers.

    On a terminal there is a progress bar with reports above it; elsewhere each report is one plain
    line, so that a log file of a long job stays readable.
    """

    def __init__(
        self,
        *,
        log: MetricsLog,
        samples: Path,
        trackers: Trackers,
        start: int,
        total: int,
        stream: TextIO | None = None,
        told: Report | None = None,
    ) -> None:
        self._log, self._total, self._told = log, total, told
        self._waiting: list[tuple[int, Mapping[str, Any]]] = []  # reports that could not be written
        self._samples, self._trackers = samples, trackers
        trackers.say = self.message  # above the bar
        self._stream = stream or sys.stderr
        self._bar = None  # off a terminal, where a disabled one would still have its thread
        if self._stream.isatty():
            self._bar = tqdm.tqdm(
                total=total, initial=start, unit="step", file=self._stream, dynamic_ncols=True
            )

    def step(self, perplexity: float) -> None:
        """One more step, for the bar alone; the perplexity is that of the report to come."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"ppl {perplexity:.2f}", refresh=False)
            self._bar.update()

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Says what the body does that takes a while, in a line or beside the bar."""
        if self._bar is None:
            self.message(f"{what}...")
            yield
            return
        self._bar.set_description_str(what)
        try:
            yield
        finally:
            self._bar.set_description_str("")

    def message(self, text: str) -> None:
        """A line for the reader, not a measurement."""
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

    def training(self, step: int, values: Mapping[str, float]) -> None:
        """One training report; the keys are those of `Window.report`, and more."""
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
        """One validation report. Trackers also have the numbers of the best one, and its step."""
        self._record("valid", step, values)
        if best:
            marked = {f"best/{name}": value for name, value in values.items()}
            self._trackers.show(step, {**marked, "best/step": step})
        scores = {name: value for name, value in values.items() if not name.endswith("_seconds")}
        shown = " · ".join(f"{name} {value:.2f}" for name, value in scores.items())
        self.message(f"validation at step {step:,} · {shown}{' · best so far' if best else ''}")

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Some of the validation's sentences, translated after `step`."""
        try:
            self._samples.mkdir(exist_ok=True)
            (self._samples / f"step-{step}.txt").write_text(as_text(samples), encoding="utf-8")
        except OSError as error:
            # Only for the reader: a full disk is no reason to end training.
            self.message(f"{self._samples}: cannot be written: {error.strerror}; training runs on")
        self._trackers.samples(step, samples)

    def _record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        waited = bool(self._waiting)
        self._waiting.append((step, {"kind": kind, **values}))
        if (failure := self.catch_up()) and not waited:
            self.message(f"{failure}; training continues, and reports are written later")
        if self._told is not None:
            self._told({"step": step, "kind": kind, **values})
        self._trackers.show(step, {f"{kind}/{name}": value for name, value in values.items()})

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
        """Forgets what was reported after `step`, where training resumes."""
        self._waiting = [report for report in self._waiting if report[0] <= step]
        self._log.rewind(step)
        self._trackers.rewind(step)
        if self._bar is not None:
            self._bar.n = step
            self._bar.refresh()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class Silence(Telemetry):
    """Says and keeps nothing: for all processes of a run but the first."""

    def __init__(self) -> None:
        pass

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        yield

    step = message = training = validation = samples = catch_up = flush = rewind = close = _nothing


@contextlib.contextmanager
def open_telemetry(
    run: RunDirectory,
    trackers: Trackers,
    settings: TrainingConfig,
    *,
    start: int,
    told: Report | None = None,
) -> Iterator[Telemetry]:
    """The reports of a run that resumes after step `start`; later ones are dropped.

    Files are made where `run` has them.
    """
    with (
        MetricsLog(run.metrics, resume_step=start) as log,
        contextlib.closing(
            Telemetry(
                log=log,
                samples=run.samples,
                trackers=trackers,
                start=start,
                total=settings.steps,
                told=told,
            )
        ) as telemetry,
    ):
        last = lost_after(read_metrics(run.metrics), start, every=settings.log_every)
        if last is not None:
            telemetry.message(
                f"warning: {run.metrics} has no report after step {last:,}: those up to step "
                f"{start:,} are lost; training is unaffected"
            )
        yield telemetry
