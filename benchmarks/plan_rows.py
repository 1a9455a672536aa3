"""What the TPU's own compiler makes of the step of every row of the paper's tables, on 8 v5e chips.

    python -m benchmarks.plan_rows --workdir DIR [--rows TABLE/ROW ...]

A whole step takes the compiler many minutes, and layers are alike: each is compiled with one and
with two layers in a stack, and the row's number of them is a line through the two. How far the line
is off says docs/reproduction.md, by the whole steps of base and big that `benchmarks.plan` has.

What is compiled is kept in DIR. The result has what was recorded before, too, as long as the row's
step is still the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plan
from benchmarks.result_file import RESULTS, Result, this_machine, write_result
from flaxformer_mt.config import ExperimentConfig, load_config
from flaxformer_mt.reproduction.paper import ROWS, Row, row_of
from flaxformer_mt.reproduction.planned import (
    at_layers,
    compiled_layers,
    key_of,
    step_digest,
)
from flaxformer_mt.reproduction.result_file import read_result
from flaxformer_mt.rundir.atomic import write_json
from flaxformer_mt.rundir.versions import git_commit

TOPOLOGY, PLACE = "v5e:2x4", "v5e_8"
Planner = Callable[[str, str, tuple[str, ...]], Any]


def main(arguments: Sequence[str] | None = None, planner: Planner = plan.plan) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_rows")
    parser.add_argument("--workdir", required=True, type=Path, metavar="DIR")
    labels = [row.label for row in ROWS]
    parser.add_argument("--rows", nargs="+", default=labels, choices=labels, metavar="ROW")
    parser.add_argument("--output", type=Path, default=RESULTS / "plan_rows.json", metavar="FILE")
    options = parser.parse_args(arguments)
    options.workdir.mkdir(parents=True, exist_ok=True)
    for label in options.rows:
        row = row_of(label)
        compiled = Compiled(options.workdir, planner)
        found = points(row, load_config(row.spec), compiled)
        record(row, found, compiled.seconds, options.output)  # at once: all of them take hours
        print(f"{label}: {json.dumps(found)}", flush=True)
    return 0


class Compiled:
    """Plans in a folder, made where they are missing; `seconds` is what these took."""

    def __init__(self, folder: Path, planner: Planner) -> None:
        self._folder, self._planner = folder, planner
        self.seconds = 0.0

    def plan(self, row: Row, config: ExperimentConfig, layers: int) -> Any:
        """With so many layers in a stack; rows that differ in their number share it."""
        path = self._folder / f"{step_digest(_program(config, layers))}.json"
        if not path.exists():
            stacks = (f"--config.model.{stack}_layers={layers}" for stack in ("encoder", "decoder"))
            values = self._planner(row.spec, TOPOLOGY, tuple(stacks))
            write_json(path, values)
            self.seconds += values["compile_seconds"]
        return json.loads(path.read_text(encoding="utf-8"))


def points(row: Row, config: ExperimentConfig, compiled: Compiled) -> dict[str, float]:
    """Milliseconds and GiB of the row's step."""
    layers = compiled_layers(config)
    plans = [compiled.plan(row, config, number) for number in layers]
    wanted = config.model.encoder_layers
    return {
        "step_ms": at_layers([1e3 * each["step_seconds"] for each in plans], layers, wanted),
        "gib": at_layers([each["needed_bytes"] / 2**30 for each in plans], layers, wanted),
    }


def _program(config: ExperimentConfig, layers: int) -> ExperimentConfig:
    """What rows share where they differ in layers, or in a constant: a rate above 0 as another."""
    model = dataclasses.replace(
        config.model,
        encoder_layers=layers,
        decoder_layers=layers,
        dropout=float(config.model.dropout > 0),
    )
    smoothing = float(config.training.label_smoothing > 0)
    training = dataclasses.replace(config.training, label_smoothing=smoothing)
    return dataclasses.replace(config, model=model, training=training)


def record(row: Row, found: dict[str, float], seconds: float, path: Path) -> Result:
    """The result with this row, and with those before it whose step is still theirs.

    `seconds` are added to those of the rows before. Raises ResultError.
    """
    before = read_result(path) if path.exists() else None
    metrics: dict[str, float] = {}
    details: dict[str, str] = {}
    for other in ROWS:
        key = key_of(other)
        names = [f"{key}_{PLACE}_{each}" for each in ("step_ms", "gib")]
        if other == row:
            metrics |= dict(zip(names, (found["step_ms"], found["gib"]), strict=True))
            details[key] = f"{step_digest(load_config(row.spec))} {git_commit()}"
        elif before is not None and key in before.details:
            if before.details[key].split()[0] == step_digest(load_config(other.spec)):
                metrics |= {name: before.metrics[name] for name in names}
                details[key] = before.details[key]
    return write_result(
        path,
        command="python -m benchmarks.plan_rows --workdir DIR",
        config=" ".join(dict.fromkeys(each.spec.partition(":")[0] for each in ROWS)),
        seconds=seconds + (0.0 if before is None else before.seconds),
        metrics=metrics,
        signatures={},
        details=details,
        machine=dataclasses.replace(
            this_machine(accelerator="none"), accelerator="none: TPUs planned for, not used"
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
