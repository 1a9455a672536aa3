"""Measures the data room: preparing text, planning, putting batches together, memory.

    python -m benchmarks.data_pipeline --europarl FOLDER --multi30k FOLDER --workdir DIR

FOLDER are Europarl v7 en-fr (500,000 pairs as `train-500k.{en,fr}.xz`, `dev.{en,fr}.xz`) and
Multi30k's `data/task1/tok`. Rates of one core are of one thread on the clock, medians of five runs
over the same 200,000 pairs; run it on an idle machine.
"""

import argparse
import dataclasses
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks import RESULTS
from flaxformer_mt.config import read_config
from flaxformer_mt.config.schema import BatchConfig
from flaxformer_mt.data.batch import assemble
from flaxformer_mt.data.order import Position
from flaxformer_mt.data.pipeline import Batches
from flaxformer_mt.data.planner import Planner, planned_batches
from flaxformer_mt.data.prepare import prepare
from flaxformer_mt.data.store import Store, TokenPairs, Tokens
from flaxformer_mt.reproduction.result_file import write_result

NAME = "data_pipeline"
FORMS: tuple[Literal["bucket", "pack"], ...] = ("bucket", "pack")
PAIRS = 200_000
REPEATS = 5
MILLION = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data_pipeline")
    parser.add_argument("--europarl", required=True, metavar="FOLDER", help="Europarl v7 en-fr")
    parser.add_argument("--multi30k", required=True, metavar="FOLDER", help="Multi30k, tokenised")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="folder for the stores")
    parser.add_argument("--pairs-of-41m", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    workdir = Path(options.workdir)
    if options.pairs_of_41m:
        print(json.dumps(large_corpus(workdir / "41m")))
        return 0
    begin = time.perf_counter()
    metrics: dict[str, float] = {}
    europarl, seconds, pairs = prepare_europarl(Path(options.europarl), workdir / "europarl")
    metrics["prepare_pairs_per_second"] = pairs / seconds
    multi30k = prepare_multi30k(Path(options.multi30k), workdir / "multi30k")
    for name, store, tokens in (("europarl", europarl, 25_000), ("multi30k", multi30k, 8192)):
        for form in FORMS:
            batch = BatchConfig(form=form, tokens=tokens, max_shapes=20)
            metrics[f"{name}_{form}_padding"] = padding(store.train, batch)
    for form in FORMS:
        batch = BatchConfig(form=form, tokens=25_000, max_shapes=20)
        metrics[f"europarl_{form}_pairs_per_second"] = statistics.median(
            one_core(europarl.train, batch) for _ in range(REPEATS)
        )
    metrics["europarl_one_worker_pairs_per_second"] = workers(europarl.train, 1)
    metrics["europarl_two_workers_pairs_per_second"] = workers(europarl.train, 2)
    write_large_corpus(workdir / "41m")
    # A process of its own, since the memory is the process's.
    command = [sys.executable, "-m", "benchmarks.data_pipeline", *sys.argv[1:], "--pairs-of-41m"]
    metrics |= json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    write_result(
        RESULTS / f"{NAME}.json",
        command="python -m benchmarks.data_pipeline --europarl FOLDER --multi30k FOLDER "
        "--workdir DIR",
        config="files:base",
        seconds=time.perf_counter() - begin,
        metrics=metrics,
        signatures={},
    )
    print(json.dumps(metrics, indent=2))
    return 0


def prepare_europarl(folder: Path, workdir: Path) -> tuple[Store, float, int]:
    """The store, the seconds from raw text to it with the vocabulary there, and its pairs."""
    overrides = [
        f"data.folder={folder}",
        "data.tgt_lang=fr",
        "data.train.europarl.src=train-500k.en.xz",
        "data.train.europarl.tgt=train-500k.fr.xz",
        "data.valid.src=dev.en.xz",
        "data.valid.tgt=dev.fr.xz",
        "data.vocabulary.size=32000",
        "data.vocabulary.sample=100000",
    ]
    config = read_config("files:base", overrides)
    first = workdir / "first"
    prepare(config.data, seed=1, directory=first)
    again = workdir / "again"
    shutil.rmtree(again, ignore_errors=True)
    again.mkdir(parents=True)
    shutil.copytree(first / "vocabulary", again / "vocabulary")
    begin = time.perf_counter()
    store = prepare(config.data, seed=1, directory=again)
    return store, time.perf_counter() - begin, len(store.train)


def prepare_multi30k(folder: Path, workdir: Path) -> Store:
    config = read_config("multi30k:tiny", [f"data.folder={folder}"])
    return prepare(config.data, seed=1, directory=workdir)


def padding(pairs: TokenPairs, batch: BatchConfig) -> float:
    """The share of an epoch's positions, both sides, without a token; the epoch is one window."""
    return Planner(pairs, batch, 1).window(0, 0).padding


def one_core(pairs: TokenPairs, batch: BatchConfig) -> float:
    """Pairs a second from an open store to batches, planning included, on this thread alone."""
    part = dataclasses.replace(batch, window=PAIRS)
    planner = Planner(pairs, part, 1)
    begin, assembled = time.thread_time(), 0
    window = planner.window(0, 0)
    for index in range(len(window.plan)):
        shape, rows = window.plan[index]
        assemble(window.pairs, rows.pairs, shape, rows.counts)
        assembled += len(rows.pairs)
    return assembled / (time.thread_time() - begin)


def workers(pairs: TokenPairs, count: int) -> float:
    """Pairs a second that worker processes deliver, after the first batches."""
    batch = BatchConfig(form="pack", tokens=25_000)
    with Batches(Planner(pairs, batch, 1), workers=count) as batches:
        for _ in range(20):
            next(batches)
        begin, delivered = time.perf_counter(), 0
        while delivered < PAIRS:
            delivered += int(next(batches)[0].sentences)
        return delivered / (time.perf_counter() - begin)


def large_corpus(folder: Path) -> dict[str, float]:
    """Seconds to the first batch and memory with 41 million pairs (WMT14 English-French)."""
    begin = time.perf_counter()
    pairs = TokenPairs([_mapped(folder, "src")], [_mapped(folder, "tgt")])
    stream = planned_batches(Planner(pairs, BatchConfig(tokens=25_000), 1), Position())
    next(stream).batch()
    first = time.perf_counter() - begin

    slowest, memory = 0.0, _process_memory()
    position = Position()
    while position.window < 3:
        begin = time.perf_counter()
        planned = next(stream)
        planned.batch()
        slowest = max(slowest, time.perf_counter() - begin)
        position = planned.position
        if position.index % 100 == 0:
            memory = max(memory, _process_memory())
    return {
        "first_batch_of_41m_seconds": first,
        "slowest_batch_of_41m_seconds": slowest,
        "memory_of_41m_mib": memory,
    }


def write_large_corpus(folder: Path) -> None:
    """Offsets of 41 million pairs with lengths like Europarl's; their tokens are a hole."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for side in ("src", "tgt"):
        end = 0
        with open(folder / f"{side}.offsets", "wb") as stream:
            stream.write(np.zeros(1, "<i8").tobytes())
            for _ in range(41):
                lengths = np.clip(random.gamma(2.0, 15.0, MILLION), 2, 256).astype(np.int64)
                offsets = end + np.cumsum(lengths)
                end = int(offsets[-1])
                stream.write(offsets.astype("<i8").tobytes())
        with open(folder / f"{side}.tokens", "wb") as stream:
            stream.truncate(2 * end)


def _mapped(folder: Path, side: str) -> Tokens:
    return Tokens(
        np.memmap(folder / f"{side}.tokens", "<u2", mode="r"),
        np.memmap(folder / f"{side}.offsets", "<i8", mode="r"),
    )


def _process_memory() -> float:
    """MiB that the process holds, without pages of mapped files: the system may take these back."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise OSError("no RssAnon in /proc/self/status: this benchmark needs Linux")


if __name__ == "__main__":
    sys.exit(main())
