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


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_gpu")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES, metavar="NAME")
    options = parser.parse_args(arguments)
    options.workdir.mkdir(parents=True, exist_ok=True)
    for name in options.cases:
        path = options.workdir / f"{name}.json"
        if not path.exists():
            print(name, flush=True)
            write_json(path, {"commit": git_commit(), "values": plan(*CASES[name])})

    metrics: dict[str, float] = {}
    commits: dict[str, str] = {}
    seconds = 0.0
    result_file = RESULTS / "plan_gpu.json"
    recorded = read_result(result_file) if result_file.exists() else None
    for name in CASES:
        path = options.workdir / f"{name}.json"
        if path.exists():
            case = json.loads(path.read_text(encoding="utf-8"))
            metrics |= {f"{name}_{key}": value for key, value in summary(case["values"]).items()}
            commits[name] = short(case["commit"])
            seconds += case["values"]["compile_seconds"]
        elif recorded is not None and f"{name}_step_ms" in recorded.metrics:
            metrics |= {f"{name}_{key}": recorded.metrics[f"{name}_{key}"] for key in KEYS}
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


if __name__ == "__main__":
    sys.exit(main())
