"""Costs of the paper's models on NVIDIA GPUs that aren't here, by XLA's compiler.

python -m benchmarks.plan_gpu --workdir DIR [--cases NAME ...]

Needs Python 3.12 and the extra `cuda`, no GPU. Each case takes a minute or two, and is kept in DIR
with its commit: a second call compiles only those that are missing. The record keeps recorded cases
that DIR lacks.
"""

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from benchmarks.plan import plan
from flaxformer_mt.reproduction.result_file import read_result, short, this_machine, write_result
from flaxformer_mt.rundir.paths import write_json
from flaxformer_mt.versions import git_commit

# About 25,000 tokens a side, as in the paper.
SHORT = ("--lengths", "32,32", "--config.data.batch.tokens=25088")  # 784 rows
LONG = ("--lengths", "256,256", "--config.data.batch.tokens=24576")  # 96 rows
# The step that was measured on an H100 (results/first_contact.json): activations in float32,
# attention by two products, a loss that writes its logits.
WIDE = ("--config.model.activation_dtype=float32",)
CASES = {
    "base_h100_32": ("wmt14_en_de:base", "h100", SHORT),
    "base_h100_256": ("wmt14_en_de:base", "h100", LONG),
    "big_h100_256": ("wmt14_en_de:big", "h100", LONG),
    "base_h100_32_float32": ("wmt14_en_de:base", "h100", (*SHORT, *WIDE)),
    "base_h100_256_float32": ("wmt14_en_de:base", "h100", (*LONG, *WIDE)),
    "big_h100_256_float32": ("wmt14_en_de:big", "h100", (*LONG, *WIDE)),
    "base_a100_256": ("wmt14_en_de:base", "a100", LONG),
    "base_b200_256": ("wmt14_en_de:base", "b200", LONG),
    "base_l4_256": ("wmt14_en_de:base", "l4", LONG),
    "base_rtx_4090_256": ("wmt14_en_de:base", "rtx-4090", LONG),
    "base_h100_8_256": (
        "wmt14_en_de:base",
        "h100:8",
        ("--lengths", "256,256", "--config.data.batch.tokens=196608"),  # 96 rows a card
    ),
}
KEYS = ("step_ms", "gigabytes", "teraflops", "kernels", "memory_gib")
# What a search compiles for a file of any lengths.
SEARCHES = {"search_h100": ("wmt14_en_de:base", "h100", ("--decode",))}
SEARCH_KEYS = (
    "programs",
    "compile_seconds",
    "longest_compile_seconds",
    "most_bytes_to_least",
    "least_bytes_to_least",
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_gpu")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    every = CASES | SEARCHES
    parser.add_argument("--cases", nargs="*", default=list(every), choices=every, metavar="NAME")
    options = parser.parse_args(arguments)
    options.workdir.mkdir(parents=True, exist_ok=True)
    for name in options.cases:
        path = options.workdir / f"{name}.json"
        if not path.exists():
            print(name, flush=True)
            write_json(path, {"commit": git_commit(), "values": plan(*every[name])})

    metrics: dict[str, float] = {}
    commits: dict[str, str] = {}
    seconds = 0.0
    result_file = RESULTS / "plan_gpu.json"
    recorded = read_result(result_file) if result_file.exists() else None
    for name in every:
        path = options.workdir / f"{name}.json"
        summarised, keys = (summary, KEYS) if name in CASES else (search_summary, SEARCH_KEYS)
        if path.exists():
            case = json.loads(path.read_text(encoding="utf-8"))
            numbers = summarised(case["values"])
            metrics |= {f"{name}_{key}": numbers[key] for key in keys}
            commits[name] = short(case["commit"])
            seconds += case["values"]["compile_seconds"]
            seconds += numbers.get("compile_seconds", 0.0)
        elif recorded is not None and f"{name}_{keys[0]}" in recorded.metrics:
            metrics |= {f"{name}_{key}": recorded.metrics[f"{name}_{key}"] for key in keys}
            commits[name] = recorded.details[name]
    plugin = importlib.metadata.version("jax-cuda13-plugin")
    write_result(
        result_file,
        command="python -m benchmarks.plan_gpu --workdir DIR",
        config="wmt14_en_de:base wmt14_en_de:big",
        seconds=seconds,
        metrics=metrics,
        signatures={},
        details=commits,
        machine=this_machine(
            accelerator=f"none: GPUs planned for (jax-cuda13-plugin {plugin}), not used"
        ),
    )
    print(json.dumps(metrics, indent=2))
    return 0


def summary(report: dict[str, Any]) -> dict[str, float]:
    """The numbers that docs/performance.md and docs/results.md show."""
    compute = report["compute"]
    return {
        "step_ms": 1e3 * report["step_seconds"],
        "gigabytes": sum(cost["bytes"] for cost in compute["operations"]) / 1e9,
        "teraflops": sum(cost["flops"] for cost in compute["operations"]) / 1e12,
        "kernels": sum(cost["count"] for cost in compute["operations"]),
        "memory_gib": report["needed_bytes"] / 2**30,
    }


def search_summary(report: dict[str, Any]) -> dict[str, float]:
    """The numbers of a search's programs; bytes are those of a step, over the least it reads."""
    programs = report["programs"]
    seconds = [program["compile_seconds"] for program in programs]
    shares = [
        sum(cost["bytes"] for cost in program["step"]["operations"]) / program["least_bytes"]
        for program in programs
        if program["step"] is not None
    ]
    return {
        "programs": len(programs),
        "compile_seconds": sum(seconds),
        "longest_compile_seconds": max(seconds),
        "most_bytes_to_least": max(shares),
        "least_bytes_to_least": min(shares),
    }


if __name__ == "__main__":
    sys.exit(main())
