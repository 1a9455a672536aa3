"""All measurements for a GPU's first minutes, each part a process with a time limit.

    python -m benchmarks.first_contact [--minutes 8] [--data FOLDER] [--parts NAME ...]
        [--output FOLDER] [--commit HASH] [--toy]
    python -m benchmarks.first_contact --collect FOLDER --europarl FOLDER

The parts, by worth: `paper_base`, training speed with the paper's batch against compiled PyTorch,
and the shares of the measured matrix rate; `decoding` of base with beam 4; `paper_big`; `attention`
by einsums, XLA and cuDNN; `doctor`; `text`, if there is any: base on a cut of Europarl with its
loss curve and scores; `greedy` decoding; `flax_base` and `flax_big`, the models of Flax's own
layers; and `steps`, base's longest step by part of the model. A part leaves the later ones the
least that they need, as far as there is time: all up to `doctor` in eight minutes, all but `text`
in twelve. If a part fails or takes too long, the result has the reason, and the next part runs. The
result, first_contact.json, is written again after each part; with --output a page of it and the
parts' logs are written beside it.

`--collect` fills a folder for a machine without a network: wheels of what an image with JAX, Flax,
Optax, Orbax, SentencePiece and PyTorch lacks (at most 30 MB), and the text (at most 20 MB):

    python -m benchmarks.first_contact --collect carried --europarl EUROPARL      # here
    python -m pip install --no-index --no-deps --target site carried/wheels/*.whl # there
    PYTHONPATH=site python -m benchmarks.first_contact --data carried/europarl \\
        --output OUT --commit HASH

HASH is what `git rev-parse HEAD` prints here: a copy without git cannot tell.
"""

import argparse
import contextlib
import dataclasses
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.carried import CannotCollect, collect
from benchmarks.contact_parts import Part, logs, outcome
from benchmarks.readme_tables import render_page
from benchmarks.training_contest import ROOT, accelerator
from benchmarks.training_report import without_paths
from flaxformer_mt.rehearsal.limited import Running, allotted
from flaxformer_mt.reproduction.result_file import COMMIT, Machine, this_machine, write_result
from flaxformer_mt.versions import git_commit

SCORING = 90.0  # seconds that are kept for scoring what was trained
# The README's metrics come first.
FIRST = (
    "paper_base_ours_bfloat16_tokens_per_second",
    "paper_base_ours_bfloat16_share_of_ceiling",
    "paper_base_ours_bfloat16_times_torch_compile_bfloat16",
    "paper_base_ours_bfloat16_cold_first_step_seconds",
    "decoding_ours_bfloat16_beam_4_tokens_per_second",
    "paper_big_ours_bfloat16_tokens_per_second",
    "paper_big_ours_bfloat16_times_torch_compile_bfloat16",
    "text_sacrebleu_13a",
    *(f"attention_base_packed_causal_{form}_ms" for form in ("ours", "cudnn_mask")),
)
# One shape of batch, one slice of the loss, a warm-up of minutes, and a search in one shape.
TEXT = (
    "data.batch.form=pack",
    "data.filter.max_length=128",
    "training.loss_chunk=0",
    "training.schedule.kind=peak",
    "training.schedule.peak=7e-4",
    "training.schedule.warmup_steps=500",
    "training.steps=100000",
    "training.log_every=20",
    "training.validate_every=1000",
    "training.save_every=100000",
    "training.validate_bleu=false",
    "training.best_metric=loss",
    "decoding.beam_size=1",
)
TOY_TEXT = (
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=32",
    "model.d_ff=64",
    "model.num_heads=2",
    "model.d_k=16",
    "model.d_v=16",
    "data.vocabulary.size=300",
    "data.batch.tokens=4096",
    "training.log_every=1",
    "training.validate_every=20",
    "decoding.max_extra_tokens=5",
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Makes the parts, which work in the folder `work` and read the text in `data`."""

    work: Path
    data: Path | None
    toy: bool

    def parts(self) -> list[Part]:
        """In the order of their worth; `text` needs `prepare`, which needs no GPU.

        An H100 has taken 49 s to the first step of base, PyTorch 60 s, and Flax's layers more than
        46; attention 40 s and the doctor 63 s (results/first_contact.json). What big and decoding
        take is a guess.
        """
        # For CPUs PyTorch compiles C++, which takes many minutes.
        peer = "torch_bfloat16" if self.toy else "torch_compile_bfloat16"
        with_peer = ("--ours", "ours_bfloat16", "--peers", peer)
        config = "quickstart" if self.toy else "wmt14_en_de:base"
        longest_step = ("--stage", "steps", "--config", config)
        of_flax = ("--ours", "--peers", "flax_bfloat16")
        parts = [
            self._prepare(),
            self._training("paper_base", "paper_base", with_peer, most=170, least=140),
            self._decoding("decoding", beam=4, most=110, least=50),
            self._training("paper_big", "paper_big", with_peer, most=200, least=150),
            self._attention(),
            self._doctor("doctor", [], most=100, least=65),
            self._text(),
            self._decoding("greedy", beam=1, most=60, least=30),
            self._training("flax_base", "paper_base", of_flax, most=100, least=70),
            self._training("flax_big", "paper_big", of_flax, most=120, least=80),
            # As `doctor --tpu-hour` times it.
            self._doctor("steps", longest_step, most=80, least=50),
        ]
        if self.toy:
            # The limits aren't meant for this machine, whatever it is.
            parts = [dataclasses.replace(part, most=math.inf, least=0.0) for part in parts]
        if self.data is None:
            return [part for part in parts if part.name not in ("prepare", "text")]
        return parts

    def _doctor(self, name: str, words: Sequence[str], *, most: float, least: float) -> Part:
        return Part(
            name=name,
            command=lambda _: ["flaxformer_mt", "doctor", "--json", *words],
            most=most,
            least=least,
            standard_output=True,
        )

    def _prepare(self) -> Part:
        return Part(
            name="prepare",
            command=lambda _: [
                *("flaxformer_mt", "prepare", "--config", "europarl", *self._run_settings()),
                f"--config.data.folder={self.data}",
            ],
            most=120,
            beside=True,
            environment={"JAX_PLATFORMS": "cpu"},
        )

    def _training(
        self, name: str, workload: str, contestants: Sequence[str], *, most: float, least: float
    ) -> Part:
        config = ["--config", "tiny", "--steps", "2"] if self.toy else ["--config", workload]
        python = f"torch={sys.executable}"  # the image has both
        folder = self.work / name
        return Part(
            name=name,
            command=lambda seconds: [
                *("benchmarks.training_speed", "--workdir", str(folder), *config),
                *(*contestants, "--python", python, "--once"),
                *("--minutes", f"{(seconds - 20) / 60:.2f}", "--result", str(folder / "results")),
            ],
            most=most,
            least=least,
            results=folder / "results",
            logs=folder / config[1],
        )

    def _decoding(self, name: str, *, beam: int, most: float, least: float) -> Part:
        sentences, rounds, layers = ("8", "1", "1") if self.toy else ("512", "2", "6")
        folder, results = self.work / f"{name}_work", self.work / name
        return Part(
            name=name,
            command=lambda _: [
                *("benchmarks.decoding_speed", "--workdir", str(folder), "--peers"),
                *("--ours", "ours_bfloat16", "--sentences", sentences, "--batches", sentences),
                *("--beams", str(beam), "--rounds", rounds, "--layers", layers),
                *("--result", str(results)),
            ],
            most=most,
            least=least,
            results=results,
            logs=folder,
        )

    def _attention(self) -> Part:
        sizes = ["--rows", "1", "--rounds", "1"] if self.toy else []
        results = self.work / "attention"
        return Part(
            name="attention",
            command=lambda _: [
                *("benchmarks.attention_speed", "--models", "base", *sizes),
                *("--output", str(results / "attention.json")),
            ],
            most=60,
            least=45,
            results=results,
        )

    def _text(self) -> Part:
        results = self.work / "text"

        def command(seconds: float) -> list[str]:
            training_seconds = "5" if self.toy else f"{seconds - SCORING:.0f}"
            return [
                *("benchmarks.europarl", "--data", str(self.data), *self._run_settings()),
                *("--seconds", training_seconds, "--sets", "europarl", "--result", str(results)),
            ]

        return Part(
            name="text",
            command=command,
            most=3600,
            least=SCORING + 60,
            results=results,
        )

    def _run_settings(self) -> list[str]:
        """Flags that `prepare` and `text` share: the run's folder and its settings."""
        settings = (*TEXT, *TOY_TEXT) if self.toy else TEXT
        flags = [f"--config.{setting}" for setting in settings]
        return ["--workdir", str(self.work / "run"), *flags]


def main(arguments: Sequence[str] | None = None) -> int:
    start, options = time.perf_counter(), parse(arguments)
    if options.collect:
        try:
            collect(options.collect, options.europarl)
        except CannotCollect as error:
            sys.exit(str(error))
        return 0

    # Every part writes a result, and a copy of a checkout has no commit of its own.
    os.environ["FLAXFORMER_COMMIT"] = options.commit or git_commit() or ""
    device = accelerator()
    if device == "none" and not options.toy:
        print("JAX finds no accelerator: --toy tries this command on a CPU", file=sys.stderr)
        return 2

    with tempfile.TemporaryDirectory(prefix="first-contact-") as folder:
        work = Path(folder)
        contact = Contact(
            parts=chosen_parts(options, work),
            work=work,
            output=options.output,
            end=start + 60 * options.minutes,
            command=as_typed(options),
            machine=this_machine(device),
        )
        contact.run()
        with contextlib.suppress(FileNotFoundError):
            if options.output != RESULTS:
                shutil.copy(work / "run" / "metrics.jsonl", options.output / "text_metrics.jsonl")
    return 0


def chosen_parts(options: argparse.Namespace, work: Path) -> list[Part]:
    data = None if options.data is None else options.data.resolve()
    parts = Plan(work, data, options.toy).parts()
    names = options.parts or [part.name for part in parts]
    if "text" in names:
        names = [*names, "prepare"]
    return [part for part in parts if part.name in names]


def as_typed(options: argparse.Namespace) -> str:
    """The command, without paths of this machine."""
    words = [f"python -m benchmarks.first_contact --minutes {options.minutes:g}"]
    words += ["--data FOLDER"] if options.data else []
    words += ["--parts", *options.parts] if options.parts else []
    words += ["--toy"] if options.toy else []
    return " ".join(words)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_contact",
        description="Everything that a GPU should be asked in its first minutes.",
    )
    parser.add_argument("--minutes", type=float, default=8.0, metavar="N", help="in all")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="Europarl, for the part text")
    names = [part.name for part in Plan(Path(), Path(), False).parts() if not part.beside]
    parser.add_argument("--parts", nargs="+", choices=names, help="these alone (default: all)")
    parser.add_argument(
        "--output",
        type=Path,
        default=RESULTS,
        metavar="FOLDER",
        help="where first_contact.json goes (default: benchmarks/results)",
    )
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
    complaint = _complaint(options)
    if complaint:
        parser.error(complaint)
    return options


def _complaint(options: argparse.Namespace) -> str | None:
    """The first thing wrong with options that measure, if any."""
    commit = options.commit or git_commit()
    if commit is None or not COMMIT.fullmatch(commit):
        return "--commit: a result names its code: give the hash, `git rev-parse HEAD`"
    checkout = git_commit() or commit
    if commit != checkout:
        return f"--commit: git says that this is {checkout}: leave it out, or remove .git here"
    if options.toy and options.output == RESULTS:
        return "--toy: --output says where its figures go, which are no results"
    if "text" in (options.parts or ()) and options.data is None:
        return "--parts text: --data names the folder of its text"
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contact:
    """Runs parts, and writes their figures to `output`/first_contact.json after each.

    The last one has to be done at `end`, by `time.perf_counter`.
    """

    parts: Sequence[Part]
    work: Path
    output: Path
    end: float
    command: str
    machine: Machine
    start: float = dataclasses.field(default_factory=time.perf_counter)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    signatures: dict[str, str] = dataclasses.field(default_factory=dict)

    def run(self) -> None:
        """Raises ResultError."""
        self.output.mkdir(parents=True, exist_ok=True)
        beside = [
            (part, Running(part, self.work, min(part.most, self._remaining()), cwd=ROOT))
            for part in self.parts
            if part.beside
        ]
        sequence = [part for part in self.parts if not part.beside]
        for number, part in enumerate(sequence):
            while beside and (number or len(sequence) == 1):
                early_part, running = beside.pop()
                self._report(early_part, *running.end())
            seconds = allotted(part, sequence[number + 1 :], self._remaining())
            if seconds is None:
                reason = f"no time was left for it: {self._remaining():.0f} of {part.least:.0f} s"
                self._report(part, reason, 0.0)
                continue
            running = Running(part, self.work, seconds, cwd=ROOT)
            self._report(part, *running.end())

    def _remaining(self) -> float:
        return self.end - time.perf_counter()

    def _report(self, part: Part, reason: str, seconds: float) -> None:
        """Adds a part's figures to the result. It took `seconds`; with a `reason` it failed."""
        self.metrics[f"{part.name}_seconds"] = seconds
        try:
            numbers, texts = outcome(part, self.work)
            self.metrics.update(numbers)
            self.signatures.update(texts)
        except Exception as error:  # the next part is worth more than this one's figures
            reason = f"{reason or 'its figures cannot be read'}: {type(error).__name__}: {error}"
        if reason:
            self.metrics[f"{part.name}_failed"] = 1
            self.signatures[f"{part.name}_failed"] = without_paths(reason)[:300]
        print(f"{part.name}: {reason or 'done'}, {seconds:.0f} s", file=sys.stderr, flush=True)
        self._write(part)

    def _write(self, part: Part) -> None:
        """Writes the result, and beside it a page and the log, which `part` is added to."""
        first = {name: self.metrics[name] for name in FIRST if name in self.metrics}
        result = write_result(
            self.output / "first_contact.json",
            command=self.command,
            config="wmt14_en_de, europarl",
            machine=self.machine,
            seconds=time.perf_counter() - self.start,
            metrics=first | self.metrics,
            signatures=self.signatures,
        )
        if self.output != RESULTS:
            page = render_page([result])
            (self.output / "first_contact.md").write_text(page, encoding="utf-8")
            with (self.output / "first_contact.log").open("a", encoding="utf-8") as log:
                log.write(f"== {part.name}\n{logs(self.work, part)}\n")


if __name__ == "__main__":
    sys.exit(main())
