"""Everything that a GPU should be asked in its first minutes, each part a process with a limit.

    python -m benchmarks.first_contact [--minutes 8] [--data FOLDER] [--parts NAME ...]
        [--output FOLDER] [--commit HASH] [--toy]
    python -m benchmarks.first_contact --collect FOLDER --europarl FOLDER

The parts, by worth: `doctor`; `paper_base`, training speed with the paper's batch against compiled
PyTorch, and the shares of the measured matrix rate; `decoding` of base, beam 4 and greedy;
`paper_big`; `attention` by einsums, XLA and cuDNN; and `text`: base on a cut of Europarl for the
time that is left, with its loss curve and scores. A part that fails or takes too long is in
the result with its reason, and the next one runs. The result, first_contact.json, is written again
after each part; with --output a page of it and all that the parts have said lie beside it.

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
from benchmarks.contact_parts import Part, Running, outcome, said
from benchmarks.readme_tables import render_page
from benchmarks.training_contest import accelerator
from benchmarks.training_report import without_paths
from flaxformer_mt.reproduction.result_file import COMMIT, this_machine, write_result
from flaxformer_mt.versions import git_commit

SCORING = 90.0  # seconds that are kept for scoring what was trained
# What the README shows comes first.
FIRST = (
    "paper_base_ours_bfloat16_tokens_per_second",
    "paper_base_ours_bfloat16_share_of_ceiling",
    "paper_base_ours_bfloat16_times_torch_compile_bfloat16",
    "paper_base_ours_bfloat16_cold_first_step_seconds",
    "decoding_ours_bfloat16_beam_4_tokens_per_second",
    "text_sacrebleu_13a",
    *(f"attention_base_packed_causal_{form}_ms" for form in ("ours", "cudnn_mask")),
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


def all_parts(work: Path, data: Path | None, *, toy: bool) -> list[Part]:
    """In the order of their worth; `prepare` is what `text` needs, and no GPU."""
    same = f"torch={sys.executable}"  # the image has both
    # For CPUs PyTorch compiles C++, which takes many minutes.
    peer = "torch_bfloat16" if toy else "torch_compile_bfloat16"

    def training(name: str, most: float, least: float) -> Part:
        config = ["--config", "tiny", "--steps", "2"] if toy else ["--config", name]
        return Part(
            name=name,
            command=lambda seconds: [
                *("benchmarks.training_speed", "--workdir", str(work / "training"), *config),
                *("--ours", "ours_bfloat16", "--peers", peer, "--python", same, "--once"),
                *("--minutes", f"{(seconds - 20) / 60:.2f}", "--result", str(work / name)),
            ],
            most=most,
            least=least,
            results=work / name,
            logs=work / "training" / config[1],
        )

    attention = ["--rows", "1", "--rounds", "1"] if toy else []
    sizes = ("8", "1", "1") if toy else ("512", "2", "6")
    settings = [f"--config.{each}" for each in (*TEXT, *(TOY_TEXT if toy else ()))]
    run = ["--workdir", str(work / "run")]
    prepare = ["prepare", "--config", "europarl", *run, *settings]
    found = [
        Part(
            name="doctor",
            command=lambda _: ["flaxformer_mt", "doctor", "--json"],
            most=100,
            standard_output=True,
        ),
        Part(
            name="prepare",
            command=lambda _: ["flaxformer_mt", *prepare, f"--config.data.folder={data}"],
            most=120,
            beside=True,
            environment={"JAX_PLATFORMS": "cpu"},
        ),
        training("paper_base", 150, 40),
        Part(
            name="decoding",
            command=lambda _: [
                *("benchmarks.decoding_speed", "--workdir", str(work / "decoder"), "--peers"),
                *("--ours", "ours_bfloat16", "--sentences", sizes[0], "--batches", sizes[0]),
                *("--rounds", sizes[1], "--layers", sizes[2], "--result", str(work / "decoding")),
            ],
            most=120,
            least=20,
            results=work / "decoding",
            logs=work / "decoder",
        ),
        training("paper_big", 160, 60),
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
            sys.exit(str(error))
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
    where = "where first_contact.json goes (default: benchmarks/results)"
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FOLDER", help=where)
    parser.add_argument("--commit", metavar="HASH", help="of what this is a copy of, without git")
    parser.add_argument("--toy", action="store_true", help="small sizes, for a machine with no GPU")
    filled = "fill it with wheels and text, and end"
    parser.add_argument("--collect", type=Path, metavar="FOLDER", help=filled)
    parser.add_argument(
        "--europarl", type=Path, metavar="FOLDER", help="as in configs/europarl.py, for --collect"
    )
    options = parser.parse_args(arguments)
    if options.collect and options.europarl is None:
        parser.error("--collect cuts its text from a corpus: --europarl names its folder")
    if options.collect:
        return options
    commit = options.commit or git_commit()
    if commit is None or not COMMIT.fullmatch(commit):
        parser.error("--commit: a result names its code: give the hash, `git rev-parse HEAD`")
    if commit != (here := git_commit() or commit):
        parser.error(f"--commit: git says that this is {here}: leave it out, or remove .git here")
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
            metrics.update(numbers)
            signatures.update(texts)
        except Exception as error:  # the next part is worth more than this one's figures
            reason = f"{reason or 'its figures cannot be read'}: {type(error).__name__}: {error}"
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


if __name__ == "__main__":
    sys.exit(main())
