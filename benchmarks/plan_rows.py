"""Costs of the step of every row of the paper's tables, by the TPU's own compiler for 8 v5e chips.

    python -m benchmarks.plan_rows --workdir DIR [--rows TABLE/ROW ...]

A whole step takes the compiler many minutes, and layers are alike: each is compiled with one and
with two layers in a stack, and the line through the two gives the cost of the row's number of
layers. docs/reproduction.md compares the line with the whole steps of base and big that
`benchmarks.plan` has.

Plans are kept in DIR with their commit, so that a stopped call can be repeated. The result has
the rows that were recorded before, too, as long as their steps are still the same. Its seconds are
those of the compilations behind its rows, each counted once.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import RESULTS, plan
from benchmarks.planned_steps import compiled_layers, key_of, step_digest
from flaxformer_mt.config import ExperimentConfig, read_config
from flaxformer_mt.reproduction.paper import ROWS, Row, row_of
from flaxformer_mt.reproduction.result_file import Result, read_result, this_machine, write_result
from flaxformer_mt.rundir.paths import write_json
from flaxformer_mt.versions import git_commit

TOPOLOGY, PLACE = "v5e:2x4", "v5e_8"
SECONDS = "compile_seconds"  # the detail that has them, by the plan's digest
Planner = Callable[[str, str, tuple[str, ...]], Any]


class DoesNotFit(Exception):
    """A step for which the chips' memory is too small: it has no cost."""


def main(arguments: Sequence[str] | None = None, planner: Planner = plan.plan) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_rows")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    labels = [row.label for row in ROWS]
    parser.add_argument("--rows", nargs="+", default=labels, choices=labels, metavar="ROW")
    parser.add_argument("--output", type=Path, default=RESULTS / "plan_rows.json", metavar="FILE")
    options = parser.parse_args(arguments)
    options.workdir.mkdir(parents=True, exist_ok=True)
    plans = Plans(options.workdir, planner)
    compiled: dict[str, Points] = {}
    for label in options.rows:
        row = row_of(label)
        compiled[label] = points(row, read_config(row.spec), plans)
        print(f"{label}: {compiled[label]}", flush=True)
    record(compiled, plans.seconds, options.output)
    return 0


class Plans:
    """Plans in a folder, made if they are missing; `seconds` has the time of each that was used."""

    def __init__(self, folder: Path, planner: Planner) -> None:
        self._folder, self._planner = folder, planner
        self._commit = git_commit()
        self.seconds: dict[str, float] = {}

    def plan(self, row: Row, config: ExperimentConfig, layers: int) -> Any:
        """Values and commit with so many layers in a stack, which rows of other numbers share.

        Raises DoesNotFit.
        """
        digest = step_digest(_program(config, layers))
        path = self._folder / f"{digest}.json"
        if not path.exists():
            stacks = (f"--config.model.{stack}_layers={layers}" for stack in ("encoder", "decoder"))
            report = self._planner(row.spec, TOPOLOGY, tuple(stacks))
            write_json(path, {"commit": self._commit, "values": report})
        recorded = json.loads(path.read_text(encoding="utf-8"))
        if recorded["values"]["compute"] is None:
            raise DoesNotFit(f"{row.label} with {layers} layers: the compiler refuses its step")
        self.seconds[digest] = recorded["values"]["compile_seconds"]
        return recorded


@dataclasses.dataclass(frozen=True)
class Points:
    """A row's step, and the commits of the programs that planned it."""

    step_ms: float
    gib: float
    commits: tuple[str, ...]


def at_layers(costs: Sequence[float], layers: Sequence[int], depth: int) -> float:
    """The line through one or two points, at `depth` layers."""
    if len(layers) == 1:
        return costs[0]
    slope = (costs[1] - costs[0]) / (layers[1] - layers[0])
    return costs[0] + slope * (depth - layers[0])


def points(row: Row, config: ExperimentConfig, plans: Plans) -> Points:
    """Raises DoesNotFit."""
    layers, depth = compiled_layers(config), config.model.encoder_layers
    recorded = [plans.plan(row, config, number) for number in layers]
    reports = [plan["values"] for plan in recorded]
    needed = at_layers([report["needed_bytes"] for report in reports], layers, depth)
    memory = reports[0]["hbm_bytes"]
    if needed > memory:
        raise DoesNotFit(
            f"{row.label}: takes {needed / 2**30:.1f} GiB of a chip's {memory / 2**30:.1f}"
        )
    return Points(
        step_ms=at_layers([1e3 * report["step_seconds"] for report in reports], layers, depth),
        gib=needed / 2**30,
        commits=tuple(sorted({plan["commit"] for plan in recorded})),
    )


def _program(config: ExperimentConfig, layers: int) -> ExperimentConfig:
    """The config that rows share if they differ in layers alone, or in a rate above 0, which is
    a constant of the program."""
    model = dataclasses.replace(
        config.model,
        encoder_layers=layers,
        decoder_layers=layers,
        dropout=float(config.model.dropout > 0),
    )
    smoothing = float(config.training.label_smoothing > 0)
    training = dataclasses.replace(config.training, label_smoothing=smoothing)
    return dataclasses.replace(config, model=model, training=training)


def _programs(row: Row) -> set[str]:
    """The digests of the plans behind a row."""
    config = read_config(row.spec)
    return {step_digest(_program(config, layers)) for layers in compiled_layers(config)}


def record(compiled: Mapping[str, Points], seconds: Mapping[str, float], path: Path) -> Result:
    """The result with these rows by label, and with earlier ones whose step is still the same.

    `seconds` are of plans, by digest. Raises ResultError.
    """
    former = read_result(path) if path.exists() else None
    metrics: dict[str, float] = {}
    details: dict[str, str] = {}
    for row in ROWS:
        key, digest = key_of(row), step_digest(read_config(row.spec))
        step_ms, gib = f"{key}_{PLACE}_step_ms", f"{key}_{PLACE}_gib"
        if row.label in compiled:
            point = compiled[row.label]
            metrics |= {step_ms: point.step_ms, gib: point.gib}
            details[key] = " ".join([digest, *point.commits])
        elif former is not None and former.details.get(key, "").startswith(digest):
            metrics |= {step_ms: former.metrics[step_ms], gib: former.metrics[gib]}
            details[key] = former.details[key]

    rows = [row for row in ROWS if key_of(row) in details]
    plan_seconds = _seconds_behind(rows, {**_recorded_seconds(former), **seconds})
    details[SECONDS] = json.dumps(plan_seconds)
    return write_result(
        path,
        command=_command(rows),
        config=" ".join(dict.fromkeys(row.spec.partition(":")[0] for row in ROWS)),
        seconds=sum(plan_seconds.values()),
        metrics=metrics,
        signatures={},
        details=details,
        machine=this_machine(accelerator="none: TPUs planned for, not used"),
    )


def _command(rows: Sequence[Row]) -> str:
    command = "python -m benchmarks.plan_rows --workdir DIR"
    if len(rows) == len(ROWS):
        return command
    return f"{command} --rows {' '.join(row.label for row in rows)}"


def _seconds_behind(rows: Sequence[Row], seconds: Mapping[str, float]) -> dict[str, float]:
    """The seconds, of those given by digest, of the plans behind these rows."""
    digests = set[str]().union(*map(_programs, rows))
    return {digest: seconds[digest] for digest in sorted(digests & seconds.keys())}


def _recorded_seconds(result: Result | None) -> dict[str, float]:
    """Seconds of the plans behind a result, if it lists them."""
    return {} if result is None else json.loads(result.details.get(SECONDS, "{}"))


if __name__ == "__main__":
    sys.exit(main())
