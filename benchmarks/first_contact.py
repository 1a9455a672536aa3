"""Everything that a GPU should be asked in its first minutes, each part a process with a limit.

    python -m benchmarks.first_contact [--minutes 8] [--data FOLDER] [--parts NAME ...]
        [--output FOLDER] [--commit HASH] [--toy]
    python -m benchmarks.first_contact --collect FOLDER --europarl FOLDER

The parts, by worth: `doctor`; `paper_base`, training speed with the paper's batch against compiled
PyTorch and Flax's layers, and the shares of the measured matrix rate; `attention` by einsums, XLA
and cuDNN; `decoding` of base, beam 4 and greedy; `paper_big`; and `text`: base on a cut of Europarl
for the time that is left, with its loss curve and scores. A part that fails or takes too long is in
the result with its reason, and the next one runs. The result, first_contact.json, is written again
after each part; with --output a page of it and all that the parts have said lie beside it.

`--collect` fills a folder for a machine without a network: wheels of what an image with JAX, Flax,
Optax, Orbax, SentencePiece and PyTorch lacks, and the text (docs/gpu.md). `--toy` tries the command
itself at small sizes, without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from benchmarks.carried import CannotCollect, collect
from benchmarks.readme_tables import render_page
from benchmarks.training_contest import ROOT, accelerator
from benchmarks.training_report import without_paths
from flaxformer_mt.reproduction.result_file import COMMIT, read_results, this_machine, write_result
from flaxformer_mt.rundir.metrics_log import read_metrics
from flaxformer_mt.versions import git_commit

SCORING = 90.0  # seconds that are kept for scoring what was trained
CURVE = 12  # points of the loss curve
# What the README shows comes first.
FIRST = (
    "paper_base_ours_bfloat16_tokens_per_second",
    "paper_base_ours_bfloat16_share_of_ceiling",
    "decoding_ours_bfloat16_beam_4_tokens_per_second",
    "text_sacrebleu_13a",
)
# One shape of batch, one slice of the loss, a warm-up of minutes, and a search in one shape.
TEXT = (
    *("data.batch.form=pack", "data.filter.max_length=128", "training.loss_chunk=0"),
    *("training.schedule.kind=peak", "training.schedule.peak=7e-4"),
    *("training.schedule.warmup_steps=500", "training.steps=100000", "training.log_every=20"),
    *("training.validate_every=1000", "training.save_every=100000"),
    *("training.validate_bleu=false", "training.best_metric=loss"),
    *("decoding.beam_size=1", "decoding.batch_tokens=65536"),
)
TOY_TEXT = (
    *("model.encoder_layers=1", "model.decoder_layers=1", "model.d_model=32", "model.d_ff=64"),
    *("model.num_heads=2", "model.d_k=16", "model.d_v=16", "data.vocabulary.size=300"),
    *("data.batch.tokens=4096", "training.log_every=1", "training.validate_every=20"),
    "decoding.max_extra_tokens=5",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A command (what follows `python -m`), given the seconds that it has.

    It has `most` at most, and does not begin with less than `least`. One that is `beside` starts
    with the first part, and ends before the second one starts or the last. Its results are read
    from `results`; processes that it asks have their logs in `logs`.
    """

    name: str
    command: Callable[[float], list[str]]
    most: float
    least: float = 0.0
    beside: bool = False
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    results: Path | None = None
    logs: Path | None = None
    standard_output: bool = False  # holds the doctor's findings


def all_parts(work: Path, data: Path | None, *, toy: bool) -> list[Part]:
    """In the order of their worth; `prepare` is what `text` needs, and no GPU."""
    same = f"torch={sys.executable}"  # the image has both

    def training(name: str, *peers: str) -> Callable[[float], list[str]]:
        config = ["--config", "tiny", "--steps", "2"] if toy else ["--config", name]
        return lambda seconds: [
            *("benchmarks.training_speed", "--workdir", str(work / "training"), *config),
            *("--ours", "ours_bfloat16", "--peers", *peers, "--python", same, "--once"),
            *("--minutes", f"{(seconds - 20) / 60:.2f}", "--result", str(work / name)),
        ]

    attention = ["--rows", "1", "--rounds", "1"] if toy else []
    sizes = ("8", "1", "1") if toy else ("512", "2", "6")
    decoding = [
        *("benchmarks.decoding_speed", "--workdir", str(work / "decoder"), "--peers"),
        *("--ours", "ours_bfloat16", "--sentences", sizes[0], "--batches", sizes[0]),
        *("--rounds", sizes[1], "--layers", sizes[2], "--result", str(work / "decoding")),
    ]
    settings = [f"--config.{each}" for each in (*TEXT, *(TOY_TEXT if toy else ()))]
    run = ["--workdir", str(work / "run")]
    prepare = ["flaxformer_mt", "prepare", "--config", "europarl", *run, *settings]
    # For CPUs PyTorch compiles C++, which takes many minutes.
    peers = ("torch_bfloat16" if toy else "torch_compile_bfloat16", "flax_bfloat16")
    found = [
        Part(
            name="doctor",
            command=lambda _: ["flaxformer_mt", "doctor", "--json"],
            most=100,
            standard_output=True,
        ),
        Part(
            name="prepare",
            command=lambda _: [*prepare, f"--config.data.folder={data}"],
            most=120,
            beside=True,
            environment={"JAX_PLATFORMS": "cpu"},
        ),
        Part(
            name="paper_base",
            command=training("paper_base", *peers),
            most=200,
            least=40,
            results=work / "paper_base",
            logs=work / "training" / ("tiny" if toy else "paper_base"),
        ),
        Part(
            name="attention",
            command=lambda _: [
                *("benchmarks.attention_speed", "--models", "base", *attention),
                *("--output", str(work / "attention" / "attention.json")),
            ],
            most=60,
            least=20,
            results=work / "attention",
        ),
        Part(
            name="decoding",
            command=lambda _: decoding,
            most=80,
            least=20,
            results=work / "decoding",
            logs=work / "decoder",
        ),
        Part(
            name="paper_big",
            command=training("paper_big", *peers),
            most=180,
            least=60,
            results=work / "paper_big",
            logs=work / "training" / ("tiny" if toy else "paper_big"),
        ),
        Part(
            name="text",
            command=lambda seconds: [
                *("benchmarks.europarl", "--data", str(data), *run, *settings),
                *("--seconds", "5" if toy else f"{seconds - SCORING:.0f}", "--sets", "europarl"),
                *("--result", str(work / "text")),
            ],
            most=3600,
            least=SCORING + 60,
            results=work / "text",
        ),
    ]
    if toy:  # whatever the machine is, it is not what the limits are for
        found = [dataclasses.replace(part, most=math.inf, least=0.0) for part in found]
    return found if data is not None else [x for x in found if x.name not in ("prepare", "text")]


def main(arguments: Sequence[str] | None = None) -> int:
    start, options = time.perf_counter(), parse(arguments)
    if options.collect:
        try:
            collect(options.collect, options.europarl)
        except CannotCollect as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    # Every part writes a result, and a copy of a checkout has no commit of its own.
    os.environ["FLAXFORMER_COMMIT"] = options.commit or git_commit() or ""
    device = accelerator()
    if device == "none" and not options.toy:
        print("JAX finds no accelerator: --toy tries this command on a CPU", file=sys.stderr)
        return 2
    typed = [f"python -m benchmarks.first_contact --minutes {options.minutes:g}"]
    typed += ["--data FOLDER"] if options.data else []
    typed += ["--parts", *options.parts] if options.parts else []
    typed += ["--toy"] if options.toy else []
    with tempfile.TemporaryDirectory(prefix="first-contact-") as folder:
        work = Path(folder)
        data = None if options.data is None else options.data.resolve()
        parts = all_parts(work, data, toy=options.toy)
        wanted = options.parts or [part.name for part in parts]
        wanted += ["prepare"] if "text" in wanted else []
        chosen = [part for part in parts if part.name in wanted]
        end = start + 60 * options.minutes
        contact(chosen, work, options.output, end, " ".join(typed), device)
        with contextlib.suppress(FileNotFoundError):
            if options.output != RESULTS:
                shutil.copy(work / "run" / "metrics.jsonl", options.output / "text_metrics.jsonl")
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_contact",
        description="Everything that a GPU should be asked in its first minutes.",
    )
    parser.add_argument("--minutes", type=float, default=8.0, metavar="N", help="in all")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="Europarl, for the part text")
    names = [part.name for part in all_parts(Path(), Path(), toy=False) if not part.beside]
    parser.add_argument("--parts", nargs="+", choices=names, help="these alone (default: all)")
    parser.add_argument(
        "--output", type=Path, default=RESULTS, metavar="FOLDER",
        help="where first_contact.json goes (default: benchmarks/results)",
    )  # fmt: skip
    parser.add_argument("--commit", metavar="HASH", help="of what this is a copy of, without git")
    parser.add_argument("--toy", action="store_true", help="small sizes, for a machine with no GPU")
    parser.add_argument(
        "--collect", type=Path, metavar="FOLDER", help="fill it with wheels and text, and end"
    )
    parser.add_argument(
        "--europarl", type=Path, metavar="FOLDER", help="as in configs/europarl.py, for --collect"
    )
    options = parser.parse_args(arguments)
    if options.collect:
        if options.europarl is None:
            parser.error("--collect cuts its text from a corpus: --europarl names its folder")
        return options
    commit = options.commit or git_commit()
    if commit is None or not COMMIT.fullmatch(commit):
        parser.error("--commit: a result names its code: give the hash, `git rev-parse HEAD`")
    if options.toy and options.output == RESULTS:
        parser.error("--toy: --output says where its figures go, which are no results")
    if "text" in (options.parts or ()) and options.data is None:
        parser.error("--parts text: --data names the folder of its text")
    return options


def contact(
    parts: Sequence[Part], work: Path, output: Path, end: float, command: str, device: str
) -> None:
    """Runs the parts and writes what they give, after each, to `output`/first_contact.json.

    `end` is when the last one has to be done, by `time.perf_counter`.
    """
    start, machine = time.perf_counter(), this_machine(device)
    output.mkdir(parents=True, exist_ok=True)
    metrics: dict[str, float] = {}
    signatures: dict[str, str] = {}

    def left() -> float:
        return end - time.perf_counter()

    def tell(part: Part, reason: str, taken: float) -> None:
        metrics[f"{part.name}_seconds"] = taken
        try:
            numbers, texts = outcome(part, work)
        except Exception as error:  # the next part is worth more than this one's figures
            reason = f"{reason or 'its figures cannot be read'}: {type(error).__name__}: {error}"
        else:
            metrics.update(numbers)
            signatures.update(texts)
        if reason:
            metrics[f"{part.name}_failed"] = 1
            signatures[f"{part.name}_failed"] = without_paths(reason)[:300]
        print(f"{part.name}: {reason or 'done'}, {taken:.0f} s", file=sys.stderr, flush=True)
        result = write_result(
            output / "first_contact.json",
            command=command,
            config="wmt14_en_de, europarl",
            machine=machine,
            seconds=time.perf_counter() - start,
            metrics={name: metrics[name] for name in FIRST if name in metrics} | metrics,
            signatures=signatures,
        )
        if output != RESULTS:
            (output / "first_contact.md").write_text(render_page([result]), encoding="utf-8")
            with (output / "first_contact.log").open("a", encoding="utf-8") as log:
                log.write(f"== {part.name}\n{said(work, part)}\n")

    waiting = [Running(part, work, min(part.most, left())) for part in parts if part.beside]
    for number, part in enumerate(part for part in parts if not part.beside):
        last = part is parts[-1]
        while waiting and (number or last):
            beside = waiting.pop()
            tell(beside.part, *beside.end())
        room = left() - (0 if last else max(0.0, parts[-1].least))
        if room < part.least:
            tell(part, f"no time was left for it: {room:.0f} of {part.least:.0f} s", 0.0)
            continue
        running = Running(part, work, min(part.most, room))
        tell(part, *running.end())


class Running:
    """A part that has been started. `end` waits for it and says what went wrong, if anything."""

    def __init__(self, part: Part, work: Path, seconds: float) -> None:
        self.part, self._seconds, self._start = part, seconds, time.perf_counter()
        self._log = work / f"{part.name}.log"
        with self._log.open("wb") as log, (work / f"{part.name}.out").open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *part.command(seconds)],
                stdin=subprocess.DEVNULL,
                stdout=out if part.standard_output else log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **part.environment},
                process_group=0,  # what it starts ends with it
            )

    def end(self) -> tuple[str, float]:
        """The reason, "" if there is none, and the seconds that it has taken."""
        reason = ""
        try:
            left = self._start + self._seconds - time.perf_counter()
            if status := self._process.wait(max(0.0, left)):
                lines = self._log.read_text(encoding="utf-8", errors="replace").strip()
                reason = f"status {status}: {lines.rpartition(chr(10))[2].strip()}"
        except subprocess.TimeoutExpired:
            reason = f"stopped after {self._seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        return reason, time.perf_counter() - self._start


def outcome(part: Part, work: Path) -> tuple[dict[str, float], dict[str, str]]:
    """What a part has left, also where it failed: metrics and signatures under its own name."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    if part.standard_output:
        with contextlib.suppress(json.JSONDecodeError):
            numbers, texts = findings(json.loads((work / f"{part.name}.out").read_text()))
    for result in [] if part.results is None else read_results(part.results):
        numbers |= result.metrics
        texts |= result.signatures
        # A form of attention that cannot do something says so in words alone.
        for name, told in result.details.items():
            if part.name == "attention":
                numbers[f"{name}_cannot"], texts[f"{name}_cannot"] = 1, without_paths(told)
    if part.name == "text":
        with contextlib.suppress(FileNotFoundError):
            numbers |= curve(work / "run" / "metrics.jsonl")

    for name in [name for name, value in numbers.items() if not math.isfinite(value)]:
        texts[f"{name}_not_finite"] = str(numbers.pop(name))
        numbers[f"{name}_not_finite"] = 1

    def named(name: str) -> str:
        return name if name.startswith(f"{part.name}_") else f"{part.name}_{name}"

    return (
        {named(name): value for name, value in numbers.items()},
        {named(name): text for name, text in texts.items() if name in numbers},
    )


def findings(found: Sequence[Mapping[str, Any]]) -> tuple[dict[str, float], dict[str, str]]:
    """The doctor's: how many of each kind, every number, and what is not in order in words."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    for state in ("ok", "warn", "FAIL"):
        those = [each for each in found if each["state"] == state]
        numbers[f"findings_{state.lower()}"] = len(those)
        if those and state != "ok":
            told = (f"{each['name']}: {each['text']}" for each in those)
            texts[f"findings_{state.lower()}"] = without_paths("; ".join(told))
    for each in found:
        for key, value in each["values"].items():
            if isinstance(value, int | float):
                name = re.sub(r"\W+", "_", f"{each['name']} {key}".lower())
                numbers[name] = value
    return numbers, texts


def curve(log: Path) -> dict[str, float]:
    """The training loss at some steps, the first report's and the last one's among them."""
    lines = [line for line in read_metrics(log) if line["kind"] == "train"]
    chosen = {round(place * (len(lines) - 1) / (CURVE - 1)) for place in range(CURVE)}
    return {
        f"loss_after_{lines[each]['step']}_steps": lines[each]["loss"]
        for each in sorted(chosen)
        if lines
    }


def said(work: Path, part: Part) -> str:
    """The end of what a part and its processes have said."""
    asked = [] if part.logs is None else sorted(part.logs.glob("*.log"))
    texts = {
        path.name: path.read_text(encoding="utf-8", errors="replace")[-20_000:]
        for path in (work / f"{part.name}.log", work / f"{part.name}.out", *asked)
        if path.exists()
    }
    return "\n".join(f"-- {name}\n{text}" for name, text in texts.items() if text)


if __name__ == "__main__":
    sys.exit(main())
