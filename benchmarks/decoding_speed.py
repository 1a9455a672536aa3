"""Decoding beside other runtimes: the same weights, sentences and cores, runs taken in turns.

python -m benchmarks.decoding_speed --workdir DIR [--peers NAME ...] [--rounds N]

A base-size model (paper, Table 3, a vocabulary of 32,000) with random weights translates sources of
10 to 50 tokens into 32 tokens each, in a process of its own for each contestant. Random weights say
nothing sensible and take the same time. `ours_bfloat16` is what
`--dtype bfloat16` does. Peers need the extra [export].
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.result_file import RESULTS, this_machine, write_result

VOCAB, SENTENCES, OUTPUT = 32_000, 128, 32
OURS = {"ours": "", "ours_bfloat16": "bfloat16_"}
PEERS = ("ctranslate2_float32", "ctranslate2_int8")
BEAMS = (4, 1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding_speed")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    options = parser.parse_args(arguments)
    options.workdir.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    contestants = {name: Contestant(name, options.workdir) for name in (*OURS, *options.peers)}
    metrics: dict[str, float] = {}
    for beam in BEAMS:
        rates: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(options.rounds):
            for name, contestant in contestants.items():
                rates[name].append(contestant.tokens_per_second(beam))
        for name, values in rates.items():
            middle = statistics.median(values)
            print(
                f"beam {beam}  {name:<20} {middle:,.0f} target tokens/s "
                f"({min(values):,.0f} to {max(values):,.0f})",
                flush=True,
            )
            metrics[f"{name}_beam_{beam}_tokens_per_second"] = middle
        for (own, prefix), name in itertools.product(OURS.items(), options.peers):
            ratios = [a / b for a, b in zip(rates[own], rates[name], strict=True)]
            metrics[f"{prefix}beam_{beam}_times_{name}"] = statistics.median(ratios)
    for contestant in contestants.values():
        contestant.close()
    write_result(
        RESULTS / "decoding_speed.json",
        command=f"python -m benchmarks.decoding_speed --workdir DIR --rounds {options.rounds}",
        config=f"base, vocabulary {VOCAB:,}, random weights",
        machine=this_machine(),
        seconds=time.perf_counter() - start,
        metrics=metrics,
        signatures={},
    )
    return 0


class Contestant:
    """A process that has loaded the model and decodes when asked."""

    def __init__(self, name: str, workdir: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.decoding_contestants", name, str(workdir)]
        self._name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._warm: set[int] = set()

    def tokens_per_second(self, beam: int) -> float:
        if beam not in self._warm:
            self._ask(beam)  # compiles, allocates
            self._warm.add(beam)
        answer = self._ask(beam)
        return float(answer["tokens"] / answer["seconds"])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, beam: int) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{beam}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._name}: ended with {self._process.wait()}")
        result: dict[str, Any] = json.loads(answer)
        return result


def sources() -> list[list[int]]:
    """Token ids without an end mark, of 10 to 50 tokens."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(10, 51, SENTENCES)
    return [rng.integers(4, VOCAB, length).tolist() for length in lengths]


if __name__ == "__main__":
    sys.exit(main())
