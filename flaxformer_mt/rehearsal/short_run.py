"""A short training on built-in text: stopped by SIGTERM, resumed by a new process, translated with.

These are three stages, so that each has processes of its own, as a preempted machine's would be.
"""

import hashlib
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flaxformer_mt.api.training import train
from flaxformer_mt.decoding.translator import Translator
from flaxformer_mt.diagnosis.machine import Finding, Value, noted
from flaxformer_mt.grammar import text as grammar
from flaxformer_mt.rehearsal.rehearsed import STEPS, Rehearsed, on_built_in_text
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.rundir.paths import read_json

_STOP_AT = STEPS // 2
_LINES = 64
_COMPILED = 30.0  # seconds
_COMPILES_AGAIN = 0.5  # of the first start's compiling: then its programs weren't kept


def check_training(rehearsed: Rehearsed) -> Iterator[Finding]:
    """Trains until a SIGTERM comes halfway; the checkpoint must be there."""

    def preempt(report: Mapping[str, Any]) -> None:
        if report["kind"] == "train" and report["step"] >= _STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)

    rehearsed.processes.first(rehearsed.begin)
    start = time.perf_counter()
    status = train(
        on_built_in_text(rehearsed.config),
        rehearsed.run,
        on_report=preempt,
        command=["doctor"],
        processes=rehearsed.processes,
    )
    seconds = time.perf_counter() - start
    text = f"{status.state} after step {status.step} ({status.reason}), {seconds:.0f} s in all"
    values = {"step": float(status.step), "seconds": seconds}
    if status.state != "stopped" or status.step >= STEPS:
        advice = "training did not stop when SIGTERM came: a preempted machine would lose its work"
        yield Finding("train", "FAIL", text, advice, values)
        return
    yield noted("train", text, values=values)


def check_resuming(rehearsed: Rehearsed) -> Iterator[Finding]:
    """The same command again: it goes on after the checkpoint, with programs that were kept."""
    run = RunDirectory(rehearsed.run)
    first = rehearsed.processes.first(lambda: dict(read_json(run.goodput)))
    start = time.perf_counter()
    status = train(
        on_built_in_text(rehearsed.config),
        run.path,
        command=["doctor"],
        processes=rehearsed.processes,
    )
    seconds = time.perf_counter() - start
    both = rehearsed.processes.first(lambda: dict(read_json(run.goodput)))
    compiling = {
        "first": first["seconds"]["compile"],
        "second": both["seconds"]["compile"] - first["seconds"]["compile"],
    }
    text = f"{status.state} at step {status.step} after {seconds:.0f} s"
    values = {"step": float(status.step), "seconds": seconds, **compiling}
    if status.state != "finished" or both["seconds"]["lost"]:
        advice = "steps before the stop were repeated or lost: look at the log above"
        yield Finding("resume", "FAIL", text, advice, values)
        return
    text += f"; compiling took {compiling['second']:.1f} s, {compiling['first']:.1f} s before"
    # A shorter time is tracing and reading: the first start found programs of an earlier one.
    compiled = compiling["first"] > _COMPILED
    was_kept = compiling["second"] <= _COMPILES_AGAIN * compiling["first"]
    advice = "" if was_kept or not compiled else "compiled programs weren't kept: see `cache` above"
    yield noted("resume", text, advice, values)
    yield _loss(rehearsed.processes.first(lambda: _losses(run)))


def _losses(run: RunDirectory) -> list[float]:
    """Those reported by both starts."""
    return [report["loss"] for report in read_metrics(run.metrics) if report["kind"] == "train"]


def _loss(losses: Sequence[float]) -> Finding:
    """Whether it fell."""
    text = f"from {losses[0]:.2f} to {losses[-1]:.2f} in {STEPS} steps"
    values: dict[str, Value] = {"first": losses[0], "last": losses[-1]}
    if math.isfinite(losses[-1]) and losses[-1] < losses[0]:
        return noted("loss", text, values=values)
    return Finding("loss", "FAIL", text, "the loss must fall: try model.dtype=float32", values)


def check_decoding(rehearsed: Rehearsed) -> Iterator[Finding]:
    """Translates with the trained run, in each process on its own devices; all must agree."""
    lines = [src for src, _ in grammar.pairs("test", _LINES)]
    start = time.perf_counter()
    translator = Translator.load(rehearsed.run)
    loaded = time.perf_counter() - start
    outputs = [translation.text for translation in translator.translate(lines)]
    first_time = time.perf_counter() - start - loaded
    start = time.perf_counter()
    translator.translate(lines)
    compiled_time = time.perf_counter() - start

    rate = _LINES / compiled_time
    text = (
        f"{_LINES} sentences in {compiled_time:.2f} s once compiled ({rate:,.0f} a second), in "
        f"{first_time:.1f} s at first; the model was read in {loaded:.1f} s"
    )
    values = {"load_seconds": loaded, "first_seconds": first_time, "seconds": compiled_time}
    digest = hashlib.sha256("\n".join(outputs).encode()).hexdigest()
    digests = rehearsed.processes.gather([digest])
    deviating = rehearsed.processes.first(
        lambda: [str(number) for number, texts in enumerate(digests) if texts != digests[0]]
    )
    if deviating:
        text += f"; translations of process {', '.join(deviating)} differ from the first one's"
        advice = "devices must compute the same: run `doctor` on each machine alone"
        yield Finding("decode", "FAIL", text, advice, values)
    else:
        yield noted("decode", text, values=values)
