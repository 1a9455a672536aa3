"""Decoding beside other runtimes: the same weights, sentences and cores, runs taken in turns.

python -m benchmarks.decoding_speed --workdir DIR [--ours NAME ...] [--peers NAME ...] [--rounds N]
    [--sentences N] [--batches N ...] [--layers N] [--beams N ...]
    [--run RUN --input FILE [--name NAME]]

A base-size model (paper, Table 3, a vocabulary of 32,000) with random weights translates sources of
10 to 50 tokens into 32 tokens each, in a process of its own for each contestant. Random weights say
nothing sensible and take the same time. CTranslate2 computes one batch at a time on all cores, or
one on each, whichever is quicker. `ours_bfloat16` is what `--dtype bfloat16` does, and
`..._shortlist` what `--shortlist` does where the sentences of a batch have 4,096 likely types, as
64 sentences of Tatoeba have. CTranslate2's `..._vmap` has the same types as its vocabulary map.
Peers need the extra [export], and run on CPUs. A GPU wants more sentences at a time:
`--sentences 512 --batches 512`.

With `--run` it is a trained run's model, with its own length penalty, and the first lines of FILE;
all end a search by CTranslate2's rule (`decoding.patience` 1, `ends_among` "beam"). Cutting lines
into pieces and joining them is not timed. CTranslate2 divides by |Y| where a run has the paper's
length penalty. `runtime_float32` and `runtime_int8` are `translate --runtime`, whose
batches have a size of their own.
"""

import argparse
import dataclasses
import itertools
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import RESULTS
from benchmarks.asked_process import AskedProcess
from benchmarks.training_contest import accelerator
from flaxformer_mt.reproduction.result_file import this_machine, write_result
from flaxformer_mt.rundir.layout import open_run, read_record

VOCAB, OUTPUT = 32_000, 32
LIKELY = 4096  # types that a shortlist has for a batch
OURS = {
    "ours": "",
    "ours_bfloat16": "bfloat16_",
    "ours_shortlist": "shortlist_",
    "ours_bfloat16_shortlist": "bfloat16_shortlist_",
}
# `translate --runtime`: CTranslate2's search, our choice among the outputs. A trained run has it.
RUNTIMES = {"runtime_float32": "runtime_float32_", "runtime_int8": "runtime_int8_"}
PEERS = (
    "ctranslate2_float32",
    "ctranslate2_int8",
    "ctranslate2_float32_vmap",
    "ctranslate2_int8_vmap",
)
NAMED = OURS | RUNTIMES
BEAMS = (4, 1)
SECONDS = 1800.0  # for one answer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """The sentences to translate, and the model's layers; the quickest of `batches`, in sentences,
    counts."""

    sentences: int = 128
    batches: tuple[int, ...] = (32, 64, 128)
    layers: int = 6
    run: str = ""
    input: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    options.workdir.mkdir(parents=True, exist_ok=True)
    start, machine = time.perf_counter(), this_machine(accelerator())
    work = Work(
        sentences=options.sentences,
        batches=tuple(options.batches),
        layers=options.layers,
        run=str(options.run.absolute()) if options.run else "",
        input=str(options.input.absolute()) if options.input else "",
    )

    contestants = {
        name: Contestant(name, options.workdir, work) for name in (*options.ours, *options.peers)
    }
    metrics: dict[str, float] = {}
    for beam in options.beams:
        rates = contest(contestants, beam, options.rounds)
        print_rates(rates, beam)
        for name, rounds in rates.items():
            metrics[f"{name}_beam_{beam}_tokens_per_second"] = statistics.median(rounds)
        for ours, peer in itertools.product(options.ours, options.peers):
            ratios = [a / b for a, b in zip(rates[ours], rates[peer], strict=True)]
            metrics[f"{NAMED[ours]}beam_{beam}_times_{peer}"] = statistics.median(ratios)

    config, suffix = f"base, vocabulary {VOCAB:,}, random weights", ""
    if options.run:
        config = read_record(open_run(options.run)).config["name"]
        suffix = f"_{options.name}"
    suffix += "" if machine.accelerator == "none" else "_gpu"
    write_result(
        options.result / f"decoding_speed{suffix}.json",
        command=as_typed(options, work),
        config=config,
        machine=machine,
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures={},
    )
    for contestant in contestants.values():
        contestant.close()
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding_speed")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--ours", nargs="+", default=list(OURS), choices=NAMED, metavar="NAME")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    usual = Work()
    parser.add_argument("--sentences", type=int, default=usual.sentences, metavar="N")
    parser.add_argument("--batches", type=int, nargs="+", default=usual.batches, metavar="N")
    parser.add_argument("--layers", type=int, default=usual.layers, metavar="N")
    parser.add_argument("--beams", type=int, nargs="+", default=list(BEAMS), metavar="N")
    parser.add_argument("--run", type=Path, metavar="RUN")
    parser.add_argument("--input", type=Path, metavar="FILE")
    parser.add_argument("--name", default="run", help="of the result of a run")
    parser.add_argument("--result", type=Path, default=RESULTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if bool(options.run) != bool(options.input):
        parser.error("--run and --input go together")
    if not options.run and set(options.ours) & RUNTIMES.keys():
        parser.error(f"{', '.join(RUNTIMES)} search with a trained run's model: add --run")
    if options.run and any("vmap" in peer for peer in options.peers):
        parser.error("--run has no vocabulary map: name other --peers")
    return options


def contest(
    contestants: Mapping[str, "Contestant"], beam: int, rounds: int
) -> dict[str, list[float]]:
    """The target tokens per second of each round, in which the contestants take turns."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            rates[name].append(contestant.tokens_per_second(beam))
    return rates


def print_rates(rates: Mapping[str, Sequence[float]], beam: int) -> None:
    for name, rounds in rates.items():
        print(
            f"beam {beam}  {name:<20} {statistics.median(rounds):,.0f} target tokens/s "
            f"({min(rounds):,.0f} to {max(rounds):,.0f})",
            flush=True,
        )


def as_typed(options: argparse.Namespace, work: Work) -> str:
    """The command, without paths of this machine."""
    words = [f"python -m benchmarks.decoding_speed --workdir DIR --rounds {options.rounds}"]
    words += ["--ours", *options.ours] if options.ours != list(OURS) else []
    words += ["--peers", *options.peers] if options.peers != list(PEERS) else []
    words += ["--beams", *map(str, options.beams)] if options.beams != list(BEAMS) else []
    words += ["--run RUN --input FILE"] if options.run else []
    words += [f"--name {options.name}"] if options.name != "run" else []
    for name in ("sentences", "batches", "layers"):
        setting = getattr(work, name)
        if setting != getattr(Work, name):
            numbers = setting if isinstance(setting, tuple) else [setting]
            words += [f"--{name}", *map(str, numbers)]
    return " ".join(words)


class Contestant:
    """A process that has loaded the model and decodes when asked."""

    def __init__(self, name: str, workdir: Path, work: Work) -> None:
        command = [sys.executable, "-m", "benchmarks.decoding_contestants", name, str(workdir)]
        self._process = AskedProcess(
            [*command, json.dumps(dataclasses.asdict(work))],
            log=workdir / f"{name}.log",
            # Several hold a GPU at the same time: JAX would take most of it for the first.
            environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        )
        self._warm: set[int] = set()

    def tokens_per_second(self, beam: int) -> float:
        if beam not in self._warm:
            self._ask(beam)  # compiles, allocates
            self._warm.add(beam)
        answer = self._ask(beam)
        return float(answer["tokens"] / answer["seconds"])

    def close(self) -> None:
        self._process.close()

    def _ask(self, beam: int) -> dict[str, Any]:
        return self._process.ask(str(beam), seconds=SECONDS)


def sources(sentences: int) -> list[list[int]]:
    """Token ids without an end mark, of 10 to 50 tokens."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(10, 51, sentences)
    return [rng.integers(4, VOCAB, length).tolist() for length in lengths]


def likely() -> np.ndarray:
    """The likely target types of each type, [VOCAB, 64]: all together have LIKELY of them."""
    return np.random.default_rng(2).integers(4, LIKELY, (VOCAB, 64)).astype(np.int32)


if __name__ == "__main__":
    sys.exit(main())
