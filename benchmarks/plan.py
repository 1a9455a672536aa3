"""What the TPU's own compiler makes of the paper's models, on chips that are not there.

python -m benchmarks.plan --workdir DIR [--cases NAME ...]

Each case takes minutes and some gigabytes, and is kept in DIR: a second call goes on with what is
missing. The result holds the cases that are there.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import RESULTS
from flaxformer_mt.reproduction.result_file import this_machine, write_result

# 25,000 source and target tokens, as in the paper; or 4,096 of each on every chip.
PAPER: tuple[str, ...] = ()
EIGHT = ("--config.data.batch.tokens=32768",)
POD = ("--config.data.batch.tokens=1048576", "--config.data.batch.multiple=256")
PLACES: dict[str, tuple[str, tuple[str, ...]]] = {
    "v5e_8": ("v5e:2x4", EIGHT),
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
            path.write_text(json.dumps(plan(*CASES[name])), encoding="utf-8")
    found = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name in CASES
        if (path := options.workdir / f"{name}.json").exists()
    }
    cases = [] if found.keys() == CASES.keys() else ["--cases", *found]
    metrics: dict[str, float] = {}
    for name, values in found.items():
        metrics |= {f"{name}_{key}": value for key, value in summary(values).items()}
    write_result(
        RESULTS / "plan.json",
        command=" ".join(["python -m benchmarks.plan --workdir DIR", *cases]),
        config="wmt14_en_de:base wmt14_en_de:big",
        seconds=sum(values["compile_seconds"] for values in found.values()),
        metrics=metrics,
        signatures={},
        machine=this_machine(accelerator="none: TPUs planned for, not used"),
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


if __name__ == "__main__":
    sys.exit(main())
