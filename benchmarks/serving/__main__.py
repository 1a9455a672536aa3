"""Measures `flaxformer-mt serve` on this machine: speed, memory, and how it bears abuse.

python -m benchmarks.serving --workdir RUN            # 100,000 requests and 10,000 hostile ones
python -m benchmarks.serving --workdir RUN --beam-size 1      # a result of its own
python -m benchmarks.serving --workdir RUN --requests 2000 --hostile 500 --no-result

RUN is a trained run directory, in which nothing changes. The server is a process of
its own, the clients are this one: on a small machine they share its cores.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import RESULTS
from benchmarks.serving.fuzz import fuzz
from benchmarks.serving.hostile import attack
from benchmarks.serving.load import Load, drive
from benchmarks.serving.process import ServerProcess, serving
from flaxformer_mt.evaluation.evaluate import read_segments
from flaxformer_mt.reproduction.result_file import write_result
from flaxformer_mt.rundir.layout import open_run, read_record

REQUESTS = 100_000
SETTLE = 2000  # requests before memory is looked at for the first time
OPERATIONS = 7  # of the API: each gets its share of the made up requests


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    parser.add_argument("--workdir", required=True, type=Path, metavar="RUN")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--hostile", type=int, default=10_000)
    parser.add_argument("--beam-size", type=int, help="default: the run's")
    parser.add_argument("--no-result", action="store_true", help="write no result file")
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    sentences = read_segments(str(options.workdir / "data" / "valid.src.txt"))
    beam = [] if options.beam_size is None else ["--beam-size", str(options.beam_size)]
    metrics: dict[str, float] = {}
    with serving(options.workdir, beam) as server:
        metrics |= measure_load(server, sentences, options.clients, options.requests)
    # The longest a client may keep the server waiting: a cut off request costs so much.
    with serving(options.workdir, [*beam, "--client-timeout", "2"]) as server:
        metrics |= measure_hostility(server, options.hostile)
    print(json.dumps(metrics, indent=2))
    if not options.no_result:
        record = read_record(open_run(options.workdir))
        flags, name = "", "serving"
        if options.beam_size is not None:
            flags, name = f" --beam-size {options.beam_size}", f"serving_beam_{options.beam_size}"
        if options.requests != REQUESTS:
            flags += f" --requests {options.requests}"
        write_result(
            RESULTS / f"{name}.json",
            command=f"python -m benchmarks.serving --workdir RUN{flags}",
            config=str(record.config["name"]),
            seconds=time.perf_counter() - begin,
            metrics=metrics,
            signatures={},
        )
    return 0


def measure_load(
    server: ServerProcess, sentences: Sequence[str], clients: int, requests: int
) -> dict[str, float]:
    drive(server, sentences, clients=clients, requests=min(SETTLE, requests))
    before = server.metrics()
    memory = [server.memory_mib()]

    def watch(done: int) -> None:
        memory.append(server.memory_mib())
        print(f"{done:,} answers, {memory[-1]:.0f} MiB", file=sys.stderr)

    load = drive(server, sentences, clients=clients, requests=requests, watch=watch)
    memory.append(server.memory_mib())
    after = server.metrics()

    def increase(name: str) -> float:
        return after[name] - before[name]

    batches = increase("flaxformer_batch_sentences_count")
    return load_metrics(load) | {
        "clients": clients,
        "sentences_per_batch": increase("flaxformer_batch_sentences_sum") / batches,
        "compiled_under_load": increase("flaxformer_compiled_programs"),
        "memory_before_mib": memory[0],
        "memory_after_mib": memory[-1],
        "memory_peak_mib": max(memory),
    }


def load_metrics(load: Load) -> dict[str, float]:
    return {
        "requests": len(load.milliseconds),
        "requests_per_second": load.per_second,
        "p50_ms": load.percentile(0.50),
        "p99_ms": load.percentile(0.99),
        "slowest_ms": load.milliseconds[-1],
        "refused": load.refused,
    }


def measure_hostility(server: ServerProcess, requests: int) -> dict[str, float]:
    """Half of them by hand, the other half made up from the OpenAPI document."""
    phases = ("--phases", "examples,coverage,fuzzing")
    examples = max(1, requests // 2 // OPERATIONS)
    counted_before = _counted(server)
    # Texts of odd lengths compile programs that the warm-up left out; that takes memory once.
    settling = attack(server, requests=requests // 8, seed=0)
    fuzz(server.url, *phases, examples=max(1, examples // 4), seed=0)
    memory, compiled = server.memory_mib(), server.metrics()["flaxformer_compiled_programs"]
    outcome = attack(server, requests=requests // 2, seed=1)
    print(f"by hand: {dict(outcome.statuses)}", file=sys.stderr)
    print(fuzz(server.url, *phases, examples=examples), file=sys.stderr)
    counts = server.metrics()
    errors = sum(
        count
        for name, count in counts.items()
        if name.startswith("flaxformer_requests_total") and 'status="500"' in name
    )
    return {
        # Those that were no HTTP reached no counter of the server's.
        "hostile_requests": _counted(server) - counted_before + outcome.statuses["closed"],
        "hostile_errors": max(errors, outcome.errors + settling.errors),
        "hostile_hung": outcome.statuses["hung"] + settling.statuses["hung"],
        "hostile_slowest_seconds": max(outcome.slowest, settling.slowest),
        "hostile_compiled": counts["flaxformer_compiled_programs"] - compiled,
        "hostile_memory_before_mib": memory,
        "hostile_memory_after_mib": server.memory_mib(),
    }


def _counted(server: ServerProcess) -> float:
    counts = server.metrics()
    return sum(
        count for name, count in counts.items() if name.startswith("flaxformer_requests_total")
    )


if __name__ == "__main__":
    sys.exit(main())
