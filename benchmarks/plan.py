"""What the TPU's own compiler makes of the paper's models, on chips that are not there.

python -m benchmarks.plan --workdir DIR [--cases NAME ...]

Each case takes minutes and some gigabytes, and is kept in DIR with its commit: a second call goes
on with what is missing. The result has those that were recorded before, too: its details say at
which commit each case was compiled. Its seconds are those of the cases in DIR.
"""

import argparse
import importlib.metadata
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import RESULTS
from flaxformer_mt.data.pack import plan_packed
from flaxformer_mt.data.plan import Shape, stream
from flaxformer_mt.reproduction.result_file import read_result, short, this_machine, write_result
from flaxformer_mt.rundir.paths import write_json
from flaxformer_mt.versions import git_commit

# 25,000 source and target tokens, as in the paper; or 4,096 of each on every chip, where gradients
# and parameters may go from chip to chip in bfloat16.
PAPER: tuple[str, ...] = ()
EIGHT = ("--config.data.batch.tokens=32768",)
NARROW = (*EIGHT, "--config.training.exchange_dtype=bfloat16")
POD = ("--config.data.batch.tokens=1048576", "--config.data.batch.multiple=256")
PLACES: dict[str, tuple[str, tuple[str, ...]]] = {
    "v5e_8": ("v5e:2x4", EIGHT),
    "v5e_8_bfloat16": ("v5e:2x4", NARROW),
    "v5e_256": ("v5e:16x16", POD),
    "v5e_8_paper": ("v5e:2x4", PAPER),
    "v5p_4_paper": ("v5p:2x2x1", PAPER),
    "v6e_8_paper": ("v6e:2x4", PAPER),
}
CASES = {
    f"{variant}_{place}": (f"wmt14_en_de:{variant}", *rest)
    for place, rest in PLACES.items()
    for variant in ("base", "big")
}
KEYS = (
    *("fits", "gib", "replications", "compute_ms", "step_ms"),
    *("compute_peak_share", "step_peak_share", "traffic_to_formula"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES, metavar="NAME")
    options = parser.parse_args(arguments)
    options.workdir.mkdir(parents=True, exist_ok=True)
    for name in options.cases:
        path = options.workdir / f"{name}.json"
        if not path.exists():
            print(name, flush=True)
            write_json(path, {"commit": git_commit(), "values": plan(*CASES[name])})
    result = RESULTS / "plan.json"
    before = read_result(result) if result.exists() else None
    metrics: dict[str, float] = {}
    commits: dict[str, str] = {}
    seconds = 0.0
    for name in CASES:
        path = options.workdir / f"{name}.json"
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            metrics |= {f"{name}_{key}": value for key, value in summary(kept["values"]).items()}
            commits[name] = kept["commit"]
            seconds += kept["values"]["compile_seconds"]
        elif before is not None and f"{name}_fits" in before.metrics:
            keys = [f"{name}_{key}" for key in KEYS]
            metrics |= {key: before.metrics[key] for key in keys if key in before.metrics}
            commits[name] = before.details.get(name, before.commit)
    by_commit: dict[str, list[str]] = defaultdict(list)
    for name, commit in commits.items():
        by_commit[short(commit)].append(name)
    told = (f"{', '.join(names)} at {commit}" for commit, names in by_commit.items())
    metrics["packed_rate_to_full_rows"] = packed_rate()
    cases = [] if commits.keys() == CASES.keys() else ["--cases", *commits]
    libtpu = importlib.metadata.version("libtpu")
    write_result(
        result,
        command=" ".join(["python -m benchmarks.plan --workdir DIR", *cases]),
        config="wmt14_en_de:base wmt14_en_de:big",
        seconds=seconds,
        metrics=metrics,
        signatures={},
        details=commits | {"compiled": "; ".join(told)},
        machine=this_machine(accelerator=f"none: TPUs planned for (libtpu {libtpu}), not used"),
    )
    print(json.dumps(metrics, indent=2))
    return 0


def plan(config: str, topology: str, settings: tuple[str, ...]) -> Any:
    """The report of the command as a user calls it; it ends with 1 where the step does not fit."""
    command = [sys.executable, "-m", "flaxformer_mt.cli.main", "plan", "--json"]
    done = subprocess.run(
        [*command, "--config", config, "--topology", topology, *settings],
        stdout=subprocess.PIPE,
        text=True,
    )
    if not done.stdout:
        raise RuntimeError(f"plan of {config} for {topology} has failed")
    return json.loads(done.stdout)


def summary(values: dict[str, Any]) -> dict[str, float]:
    """The numbers that the README shows; shares lie between 0 and 1."""
    found = {
        "fits": float(values["fits"]),
        "gib": values["needed_bytes"] / 2**30,
        "replications": len(values["replications"]),
    }
    if values["compute"] is not None:
        found |= {
            "compute_ms": 1e3 * values["compute"]["seconds"],
            "step_ms": 1e3 * values["step_seconds"],
            "compute_peak_share": values["compute_peak_share"],
            "step_peak_share": values["peak_share"],
            "traffic_to_formula": (
                values["collective_bytes"] / values["expected_collective_bytes"]
            ),
        }
    return found


def packed_rate() -> float:
    """Tokens in a batch of packed rows over those in the full rows of `v5e_8`: one program.

    Of sentences about as long as WMT 2014's in word-pieces, 30 and 31 tokens on average; half of
    the sources have up to 24, and a pair's two sides differ by a fifth.
    """
    random = np.random.default_rng(0)
    src = 24 * np.exp(0.65 * random.standard_normal(1 << 18))
    tgt = 1.03 * src * np.exp(0.2 * random.standard_normal(len(src)))
    lengths = np.clip(np.rint([src, tgt]), 2, 256).astype(np.int64)
    packed = plan_packed(lengths[0], lengths[1], Shape(128, 256, 256), stream(0, 0, 0))
    return float(lengths.sum() / packed.positions)


if __name__ == "__main__":
    sys.exit(main())
