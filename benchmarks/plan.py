"""Costs of the paper's models by the TPU's own compiler, for chips that you don't have.

python -m benchmarks.plan --workdir DIR [--cases NAME ...]

Each case takes minutes and some gigabytes, and is kept in DIR with its commit: a second call
compiles only those that are missing. The result has those that were recorded before, too: its
details say at which commit each case was compiled. Its seconds are those of the cases in DIR.

The compiler is the libtpu that is installed. Rows of another one than 0.0.42.1 have its version in
their names: run the command in both environments, with one DIR.
"""

import argparse
import dataclasses
import importlib.metadata
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import RESULTS
from flaxformer_mt.data.pack import plan_packed
from flaxformer_mt.data.plan import Shape, plan_bits
from flaxformer_mt.reproduction.result_file import (
    Result,
    read_result,
    short,
    this_machine,
    write_result,
)
from flaxformer_mt.rundir.paths import write_json
from flaxformer_mt.versions import git_commit

# 25,000 source and target tokens, as in the paper; or 4,096 of each on every chip, where gradients
# and parameters may go from chip to chip in bfloat16.
PAPER: tuple[str, ...] = ()
EIGHT = ("--config.data.batch.tokens=32768",)
FOUR = ("--config.data.batch.tokens=16384",)
NARROW = (*EIGHT, "--config.training.exchange_dtype=bfloat16")
POD = ("--config.data.batch.tokens=1048576", "--config.data.batch.multiple=256")
PLACES: dict[str, tuple[str, tuple[str, ...]]] = {
    "v5e_8": ("v5e:2x4", EIGHT),
    "v5e_8_bfloat16": ("v5e:2x4", NARROW),
    "v5e_256": ("v5e:16x16", POD),
    "v5e_8_paper": ("v5e:2x4", PAPER),
    "v5p_4": ("v5p:2x2x1", FOUR),
    "v6e_8": ("v6e:2x4", EIGHT),
    "v5p_4_paper": ("v5p:2x2x1", PAPER),
    "v6e_8_paper": ("v6e:2x4", PAPER),
}
# The compiler of the rows whose names have none; a case's name with another's version.
USUAL = "0.0.42.1"
_OF_OTHER = re.compile(r"(\w+?)_libtpu_([\d_]+)")
CASES = {
    f"{variant}_{place}": (f"wmt14_en_de:{variant}", topology, settings)
    for place, (topology, settings) in PLACES.items()
    for variant in ("base", "big")
}
KEYS = (
    "fits",
    "gib",
    "replications",
    "compute_ms",
    "step_ms",
    "compute_peak_share",
    "step_peak_share",
    "exposed_ms",
    "least_step_ms",
    "step_ms_unoverlapped",
    "step_peak_share_unoverlapped",
    "traffic_to_formula",
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES, metavar="NAME")
    options = parser.parse_args(arguments)
    options.workdir.mkdir(parents=True, exist_ok=True)
    version = importlib.metadata.version("libtpu")
    for case in options.cases:
        path = options.workdir / f"{row_name(case, version)}.json"
        if not path.exists():
            print(path.stem, flush=True)
            write_json(path, {"commit": git_commit(), "values": plan(*CASES[case])})

    result_file = RESULTS / "plan.json"
    record = record_of(options.workdir, read_result(result_file) if result_file.exists() else None)
    compiled_cases = {case_of(name) for name in record.commits}
    cases = [] if compiled_cases == CASES.keys() else ["--cases", *sorted(compiled_cases)]
    metrics = record.metrics | {"packed_rate_to_full_rows": packed_rate()}
    write_result(
        result_file,
        command=" ".join(["python -m benchmarks.plan --workdir DIR", *cases]),
        config="wmt14_en_de:base wmt14_en_de:big",
        seconds=record.seconds,
        metrics=metrics,
        signatures={},
        details=record.commits | {"compiled": record.compiled(), "compilers": record.compilers()},
        machine=this_machine(accelerator="none: TPUs planned for, not used"),
    )
    print(json.dumps(metrics, indent=2))
    return 0


def row_name(case: str, version: str) -> str:
    """The name of a case that this libtpu has compiled."""
    return case if version == USUAL else f"{case}_libtpu_{version.replace('.', '_')}"


def case_of(name: str) -> str:
    """The case of a row."""
    match = _OF_OTHER.fullmatch(name)
    return match[1] if match else name


def compiler_of(name: str) -> str:
    """The libtpu that has compiled a row."""
    match = _OF_OTHER.fullmatch(name)
    return match[2].replace("_", ".") if match else USUAL


@dataclasses.dataclass
class Record:
    """Metrics and commits of all rows that were ever compiled, and the seconds of those in the
    folder."""

    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    commits: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0

    def compiled(self) -> str:
        """The names of the cases compiled at each commit, as text."""
        names: dict[str, list[str]] = defaultdict(list)
        for name, commit in self.commits.items():
            names[short(commit)].append(name)
        return "; ".join(f"{', '.join(cases)} at {commit}" for commit, cases in names.items())

    def compilers(self) -> str:
        """The names of the rows of each compiler, as text."""
        names: dict[str, list[str]] = defaultdict(list)
        for name in self.commits:
            names[compiler_of(name)].append(name)
        return "; ".join(f"libtpu {version}: {', '.join(rows)}" for version, rows in names.items())


def record_of(folder: Path, recorded: Result | None) -> Record:
    """The rows in a folder, and of those that it lacks the ones `recorded` earlier."""
    record = Record()
    for name in _rows(folder, recorded):
        path = folder / f"{name}.json"
        if path.exists():
            case = json.loads(path.read_text(encoding="utf-8"))
            for key, number in summary(case["values"]).items():
                record.metrics[f"{name}_{key}"] = number
            record.commits[name] = case["commit"]
            record.seconds += case["values"]["compile_seconds"]
        else:
            assert recorded is not None
            keys = [f"{name}_{key}" for key in KEYS]
            record.metrics |= {
                key: recorded.metrics[key] for key in keys if key in recorded.metrics
            }
            record.commits[name] = recorded.details.get(name, recorded.commit)
    return record


def _rows(folder: Path, recorded: Result | None) -> list[str]:
    """The names of all rows, by compiler and then in the order of the cases."""
    past = {} if recorded is None else recorded.metrics
    # A result without this metric has times and shares that count no overlap.
    names = {name.removesuffix("_exposed_ms") for name in past if name.endswith("_exposed_ms")}
    names |= {path.stem for path in folder.glob("*.json")}
    order = [*CASES]
    known = [name for name in names if case_of(name) in CASES]
    return sorted(known, key=lambda name: (compiler_of(name), order.index(case_of(name))))


def plan(config: str, topology: str, settings: tuple[str, ...]) -> Any:
    """The report of the command as a user calls it; it ends with 1 where the step does not fit."""
    command = [sys.executable, "-m", "flaxformer_mt", "plan", "--json"]
    completed = subprocess.run(
        [*command, "--config", config, "--topology", topology, *settings],
        stdout=subprocess.PIPE,
        text=True,
    )
    if not completed.stdout:
        raise RuntimeError(f"plan of {config} for {topology} has failed")
    return json.loads(completed.stdout)


def summary(report: dict[str, Any]) -> dict[str, float]:
    """The numbers that the README shows; shares lie between 0 and 1."""
    numbers = {
        "fits": float(report["fits"]),
        "gib": report["needed_bytes"] / 2**30,
        "replications": len(report["replications"]),
    }
    if report["compute"] is not None:
        numbers |= {
            "compute_ms": 1e3 * report["compute"]["seconds"],
            "step_ms": 1e3 * report["step_seconds"],
            "compute_peak_share": report["compute_peak_share"],
            "step_peak_share": report["peak_share"],
            # Of all collectives, those that the schedule doesn't hide; and a step's bounds, with
            # everything asynchronous hidden and with nothing.
            "exposed_ms": 1e3 * report["exposed"]["most"],
            "least_step_ms": 1e3 * report["least_step_seconds"],
            "step_ms_unoverlapped": 1e3 * report["unoverlapped_step_seconds"],
            "step_peak_share_unoverlapped": report["unoverlapped_peak_share"],
            "traffic_to_formula": (
                report["collective_bytes"] / report["expected_collective_bytes"]
            ),
        }
    return numbers


def packed_rate() -> float:
    """Tokens in a batch of packed rows over those in the full rows of `v5e_8`: one program.

    Of sentences about as long as WMT 2014's in word-pieces, 30 and 31 tokens on average; half of
    the sources have up to 24, and a pair's two sides differ by a fifth.
    """
    random = np.random.default_rng(0)
    src = 24 * np.exp(0.65 * random.standard_normal(1 << 18))
    tgt = 1.03 * src * np.exp(0.2 * random.standard_normal(len(src)))
    lengths = np.clip(np.rint([src, tgt]), 2, 256).astype(np.int64)
    packed = plan_packed(lengths[0], lengths[1], Shape(128, 256, 256), plan_bits(0, 0, 0))
    return float(lengths.sum() / packed.positions)


if __name__ == "__main__":
    sys.exit(main())
