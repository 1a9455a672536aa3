"""Training's output: a progress bar or plain lines, `metrics.jsonl`, trackers."""

import contextlib
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import numpy as np
import tqdm

from flaxformer_mt.files.atomic import write_whole
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.metrics_log import MetricsLog, lost_after, read_metrics
from flaxformer_mt.rundir.paths import explained
from flaxformer_mt.training.instruments import Utilization, duration
from flaxformer_mt.training.trackers import Sample, Trackers, as_text

# Keys of reports that differ between runs of the same settings.
TIMES = frozenset(
    "src_tokens_per_second tgt_tokens_per_second data_wait seconds_per_step eta_seconds "
    "training_seconds mfu goodput".split()
)


def perplexity(nll: float) -> float:
    """exp(nll); infinite instead of an overflow, as when training has just begun."""
    return math.inf if nll > 700 else math.exp(nll)


@dataclasses.dataclass(kw_only=True)
class MetricSums:
    """A window's sums: plain numbers, kept in checkpoints."""

    steps: int = 0
    loss: float = 0.0
    nll: float = 0.0
    scored: float = 0.0  # target tokens of `loss` and `nll`, without skipped updates
    src_tokens: float = 0.0
    tgt_tokens: float = 0.0
    sentences: float = 0.0
    positions: float = 0.0
    waited: float = 0.0
    seconds: float = 0.0  # up to when the window was saved


class MetricsWindow:
    """The steps since the last training report, without the time of compiling and between steps.

    It continues from a stopped run's `MetricSums`, so reports don't depend on where that was.
    """

    def __init__(
        self, sums: MetricSums | None = None, utilization: Utilization | None = None
    ) -> None:
        self._sums = MetricSums() if sums is None else dataclasses.replace(sums)
        self._start = time.perf_counter() - self._sums.seconds
        self._utilization = utilization
        self._last: Mapping[str, np.ndarray] = {}

    @property
    def sums(self) -> MetricSums:
        return dataclasses.replace(self._sums, seconds=time.perf_counter() - self._start)

    def add(self, metrics: Mapping[str, np.ndarray], *, positions: int) -> None:
        """One step's metrics, and the source and target positions of its batch."""
        sums, tokens = self._sums, float(metrics["tgt_tokens"])
        if metrics["bad_run"] == 0:
            weight = float(metrics["tgt_weight"])
            sums.loss += float(metrics["loss"]) * weight
            sums.nll += float(metrics["nll"]) * weight
            sums.scored += weight
        sums.tgt_tokens += tokens
        sums.src_tokens += float(metrics["src_tokens"])
        sums.sentences += float(metrics["sentences"])
        sums.positions += positions
        sums.steps += 1
        self._last = metrics

    @property
    def perplexity(self) -> float:
        """Of the steps so far, as the report gives it after the last of them."""
        return perplexity(self._sums.nll / (self._sums.scored or math.nan))

    def left_out(self, seconds: float) -> None:
        """Leaves out this time: a step was compiled in it."""
        self._start += seconds

    def waited(self, seconds: float) -> None:
        """Counts time spent waiting for the next batch."""
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
        """The report of one or more steps; begins a new window.

        Losses are nats per target token, NaN if every update was skipped; rates are per second,
        shares in [0, 1]. `mfu` is left out if no peak is known.
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
        self._sums, self._start = MetricSums(), time.perf_counter()
        return values


Report = Callable[[Mapping[str, Any]], object]


class Telemetry(contextlib.AbstractContextManager["Telemetry"]):
    """Sends each report to the screen, the run's metrics log, `trackers` and the callback `told`.

    Sample translations go to the run and to the trackers. A terminal has a progress bar with
    reports above it, a log file one plain line for each. Raises RunDirectoryError.
    """

    def __init__(
        self,
        run: RunDirectory,
        trackers: Trackers,
        *,
        start: int,
        total: int,
        stream: TextIO | None = None,
        told: Report | None = None,
    ) -> None:
        self._log = MetricsLog(run.metrics)
        self._total = total
        self._told = told
        self._samples, self._trackers = run.samples, trackers
        trackers.say = self.message  # above the bar
        self._stream = stream or sys.stderr
        self._bar = None  # off a terminal, where a disabled one would still have its thread
        if self._stream.isatty():
            self._bar = tqdm.tqdm(
                total=total, initial=start, unit="step", file=self._stream, dynamic_ncols=True
            )

    def step(self, perplexity: float) -> None:
        """Moves the bar one step; the perplexity is the next report's so far."""
        if self._bar is not None:
            self._bar.set_postfix_str(f"ppl {perplexity:.2f}", refresh=False)
            self._bar.update()

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Says what the body is doing, in a line or beside the bar."""
        if self._bar is None:
            self.message(f"{what}...")
            yield
            return
        self._bar.set_description_str(what)
        try:
            yield
        finally:
            self._bar.set_description_str("")

    def cost(self, sums: MetricSums, steps_left: int) -> None:
        """Says how long the rest of training takes here."""
        if sums.steps and steps_left > 0:
            seconds_per_step = sums.seconds / sums.steps
            self.message(
                f"about {duration(steps_left * seconds_per_step)} for the {steps_left:,} steps "
                f"left, at {seconds_per_step:.2g} s each, plus validation and compiling"
            )

    def message(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=self._stream)
        else:
            print(text, file=self._stream, flush=True)

    def training(self, step: int, values: Mapping[str, float]) -> None:
        """One training report, with the keys of `MetricsWindow.report` and others."""
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
        """One validation report. Trackers also get the best one's numbers and step."""
        self._record("valid", step, values)
        if best:
            best_values = {f"best/{name}": value for name, value in values.items()}
            self._trackers.show(step, {**best_values, "best/step": step})
        scores = _listed({name: value for name, value in values.items() if "/" not in name})
        self.message(f"validation at step {step:,} · {scores}{' · best so far' if best else ''}")
        for line in _by_set(values):
            self.message(f"  {line}")

    def samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Some validation sentences, translated after `step`."""
        with explained(self._samples, "written"):
            self._samples.mkdir(exist_ok=True)
            write_whole(self._samples / f"step-{step}.txt", as_text(samples).encode())
        self._trackers.samples(step, samples)

    def _record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        self._log.write(step, {"kind": kind, **values})
        if self._told is not None:
            self._told({"step": step, "kind": kind, **values})
        self._trackers.show(step, {f"{kind}/{name}": value for name, value in values.items()})

    def rewind(self, step: int, *, every: int) -> None:
        """Forgets what was reported after `step`, where training resumes, and says if earlier
        reports, one `every` so many steps, are missing."""
        self._log.rewind(step)
        last = lost_after(read_metrics(self._log.path), step, every=every)
        if last is not None:
            self.message(
                f"warning: {self._log.path} has no report after step {last:,}, though training "
                f"resumes after step {step:,}: curves will lack those in between"
            )
        self._trackers.rewind(step)
        if self._bar is not None:
            self._bar.n = step
            self._bar.refresh()

    def __exit__(self, *_: object) -> None:
        with self._log:
            if self._bar is not None:
                self._bar.close()


def _listed(scores: Mapping[str, float]) -> str:
    """Scores in one line, without times."""
    return " · ".join(
        f"{name} {value:.2f}" for name, value in scores.items() if not name.endswith("_seconds")
    )


def _by_set(scores: Mapping[str, float]) -> Iterator[str]:
    """A line on each of several validation sets, whose scores have names such as `bleu/SET`."""
    of_sets: dict[str, dict[str, float]] = {}
    for name, value in scores.items():
        score, slash, set_name = name.partition("/")
        if slash:
            of_sets.setdefault(set_name, {})[score] = value
    for set_name, of_set in of_sets.items():
        yield f"{set_name} · {_listed(of_set)}"


class Silence(Telemetry):
    """Reports nothing: for all processes of a run but the first."""

    def __init__(self) -> None:
        pass

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        yield

    step = message = training = validation = samples = rewind = _nothing
