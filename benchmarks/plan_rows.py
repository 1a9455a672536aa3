"""What the TPU's own compiler makes of the step of every row of the paper's tables, on 8 v5e chips.

    python -m benchmarks.plan_rows --workdir DIR [--rows TABLE/ROW ...]

A whole step takes the compiler many minutes, and layers are alike: each is compiled with one and
with two layers in a stack, and the row's number of them is a line through the two. How far the line
is off says docs/reproduction.md, by the whole steps of base and big that `benchmarks.plan` has.

What is compiled is kept in DIR with its commit, and a call that was stopped goes on. The result has
the rows that were recorded before, too, as long as their steps are still the same. Its seconds are
those of the compilations behind its rows, each counted once, however often it was asked for.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import RESULTS, plan
from flaxformer_mt.config import ExperimentConfig, load_config
from flaxformer_mt.reproduction.paper import ROWS, Row, row_of
from flaxformer_mt.reproduction.planned import (
    compiled_layers,
    key_of,
    step_digest,
)
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
    found = {}
    for label in options.rows:
        row = row_of(label)
        found[row.label] = points(row, load_config(row.spec), plans)
        print(f"{label}: {found[row.label]}", flush=True)
    record(found, plans.seconds, options.output)
    return 0


class Plans:
    """Plans in a folder, made where they are missing; `seconds` is what each asked for took."""

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
            values = self._planner(row.spec, TOPOLOGY, tuple(stacks))
            write_json(path, {"commit": self._commit, "values": values})
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["values"]["compute"] is None:
            raise DoesNotFit(f"{row.label} with {layers} layers: the compiler refuses its step")
        self.seconds[digest] = kept["values"]["compile_seconds"]
        return kept


@dataclasses.dataclass(frozen=True)
class Points:
    """A row's step, and the commits of the programs that asked for it."""

    step_ms: float
    gib: float
    commits: tuple[str, ...]


def at_layers(values: Sequence[float], layers: Sequence[int], wanted: int) -> float:
    """The line through one or two points, at `wanted` layers."""
    if len(layers) == 1:
        return values[0]
    slope = (values[1] - values[0]) / (layers[1] - layers[0])
    return values[0] + slope * (wanted - layers[0])


def points(row: Row, config: ExperimentConfig, plans: Plans) -> Points:
    """Raises DoesNotFit."""
    layers, wanted = compiled_layers(config), config.model.encoder_layers
    kept = [plans.plan(row, config, number) for number in layers]
    values = [each["values"] for each in kept]
    needed = at_layers([each["needed_bytes"] for each in values], layers, wanted)
    if needed > values[0]["hbm_bytes"]:
        has = values[0]["hbm_bytes"] / 2**30
        raise DoesNotFit(f"{row.label}: takes {needed / 2**30:.1f} GiB of a chip's {has:.1f}")
    return Points(
        at_layers([1e3 * each["step_seconds"] for each in values], layers, wanted),
        needed / 2**30,
        tuple(sorted({each["commit"] for each in kept})),
    )


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


def _programs(row: Row) -> set[str]:
    """The digests of the plans behind a row."""
    config = load_config(row.spec)
    return {step_digest(_program(config, layers)) for layers in compiled_layers(config)}


def record(found: Mapping[str, Points], seconds: Mapping[str, float], path: Path) -> Result:
    """The result with these rows, and with those before them whose step is still theirs.

    `seconds` are of plans, by digest. Raises ResultError.
    """
    before = read_result(path) if path.exists() else None
    metrics: dict[str, float] = {}
    details: dict[str, str] = {}
    for row in ROWS:
        key, digest = key_of(row), step_digest(load_config(row.spec))
        names = [f"{key}_{PLACE}_{each}" for each in ("step_ms", "gib")]
        if row.label in found:
            it = found[row.label]
            metrics |= dict(zip(names, (it.step_ms, it.gib), strict=True))
            details[key] = " ".join([digest, *it.commits])
        elif before is not None and before.details.get(key, "").startswith(digest):
            metrics |= {name: before.metrics[name] for name in names}
            details[key] = before.details[key]
    recorded = [row for row in ROWS if key_of(row) in details]
    behind = set[str]().union(*map(_programs, recorded))
    known = {**_known(before), **seconds}
    told = {digest: known[digest] for digest in sorted(behind & known.keys())}
    details[SECONDS] = json.dumps(told)
    has = [row.label for row in recorded]
    return write_result(
        path,
        command="python -m benchmarks.plan_rows --workdir DIR"
        + ("" if len(has) == len(ROWS) else f" --rows {' '.join(has)}"),
        config=" ".join(dict.fromkeys(each.spec.partition(":")[0] for each in ROWS)),
        seconds=sum(told.values()),
        metrics=metrics,
        signatures={},
        details=details,
        machine=this_machine(accelerator="none: TPUs planned for, not used"),
    )


def _known(before: Result | None) -> dict[str, float]:
    """Seconds of the plans behind a result, as far as it tells them apart."""
    return {} if before is None else json.loads(before.details.get(SECONDS, "{}"))


if __name__ == "__main__":
    sys.exit(main())
