"""Rows one after the other: prepared, trained, measured; what is done is not done again."""

from __future__ import annotations

import dataclasses
import gc
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import jax

from flaxformer_mt.config import differences, freeze, to_dict
from flaxformer_mt.config.digest_keys import decides, may_change
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.measuring import measure, read_test
from flaxformer_mt.reproduction.planned import planned_flops, planned_parameters
from flaxformer_mt.reproduction.records import known, remove_failure, write_failure
from flaxformer_mt.reproduction.result_file import Result
from flaxformer_mt.reproduction.shared_text import first_pairs, take_prepared
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.text_table import aligned

Ending = Literal["finished", "stopped"]
# Trains or continues a run, with settings (`a.b=value`) that a run may change.
Train = Callable[[RunDirectory, Sequence[str]], Ending]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one experiment ended. `kept`: it was done before."""

    experiment: Experiment
    kind: Literal["kept", "measured", "stopped", "failed"]
    message: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """Runs below `workdir`, results in `results`.

    `explain` gives the message of an error that is no bug, else None. `command` is noted in the
    runs as what has started them.
    """

    workdir: Path
    results: Path
    train: Train
    explain: Callable[[Exception], str | None]
    say: Callable[[str], None]
    command: Sequence[str]

    def run_of(self, experiment: Experiment) -> RunDirectory:
        """Whatever is trained otherwise has another one: no run continues with other settings."""
        return RunDirectory(self.workdir / "runs" / experiment.run_name)

    def run(self, experiments: Iterable[Experiment]) -> list[Outcome]:
        """Does what is not done yet. A failure is noted and the next one begun; a stop ends all."""
        outcomes: list[Outcome] = []
        for experiment in experiments:
            self.say(f"\n== {experiment.row.label}, seed {experiment.seed}")
            outcomes.append(self._one(experiment))
            self.say(f"{experiment.name}: {outcomes[-1].kind} {outcomes[-1].message}".rstrip())
            if outcomes[-1].kind == "stopped":
                break
        return outcomes

    def _one(self, experiment: Experiment) -> Outcome:
        before = known(experiment, self.results)
        if before.state == "done":
            return Outcome(experiment=experiment, kind="kept")
        if before.state == "stale":
            self.say(f"stale: {before.note}; it is measured again")
        try:
            result = self._trained_and_measured(experiment)
        except Exception as error:
            message = self.explain(error)
            if message is None:
                # A bug, which keeps its trace; the other rows may be without it.
                traceback.print_exc(file=sys.stderr)
                message = f"{type(error).__name__}: {error}"
            message = message.split("\n")[0]
            write_failure(experiment, message, self.results)
            return Outcome(experiment=experiment, kind="failed", message=message)
        finally:
            # Twenty models' programs are not to be in memory at one time.
            jax.clear_caches()
            gc.collect()
        if result is None:
            return Outcome(experiment=experiment, kind="stopped")
        remove_failure(experiment, self.results)
        return Outcome(experiment=experiment, kind="measured")

    def _trained_and_measured(self, experiment: Experiment) -> Result | None:
        """None: training was stopped on request."""
        test = read_test(experiment, say=self.say)
        run = self.run_of(experiment)
        changes: list[str] = []
        if layout.has_record(run):
            changes = _changes(run, experiment)
        else:
            data, pairs, say = experiment.config.data, experiment.pairs, self.say
            if pairs is not None:
                data = first_pairs(data, pairs, folder=self.workdir / "extracts", say=say)
            prepared = self.workdir / "prepared"
            take_prepared(run, data, seed=experiment.seed, folder=prepared, say=say)
            config = dataclasses.replace(experiment.config, data=data)
            layout.create(run.path, to_dict(config), self.command)
        if self.train(run, changes) == "stopped":
            return None
        return measure(experiment, run, test, results=self.results)


def listing(experiments: Iterable[Experiment], results: Path) -> str:
    """What a call would do, for people: experiments, how they stand, what they are likely to cost.

    FLOPs are `planned_flops`. Raises ResultError for a foreign result file.
    """
    rows: list[Sequence[str]] = []
    notes: list[str] = []
    total, left = 0.0, 0.0
    for experiment in experiments:
        found, config, row = known(experiment, results), experiment.config, experiment.row
        flops = planned_flops(config)
        total += flops
        left += flops if found.state != "done" else 0
        pairs = f"{sum((experiment.pairs or row.pairs).values()):,}"
        pairs = pairs if experiment.settings.corpus is None else f"<= {pairs}"
        averaged = str(config.training.keep_for_average or "last alone")
        parameters = f"{planned_parameters(config) / 1e6:.2f}"
        rows.append(
            [
                *(row.name, row.spec, str(experiment.seed), found.state),
                *(f"{config.training.steps:,}", pairs, averaged, parameters, f"{flops:.1e}"),
            ]
        )
        if found.note:
            notes.append(f"{row.name}: {found.state}: {found.note}")
    header = ["row", "config", "seed", "state", "steps", "pairs", "averaged", "M params", "FLOPs"]
    costs = f"all: {total:.1e} FLOPs, of which {left:.1e} are to be done (by formula, every batch "
    return "\n".join([aligned(header, rows, left={0, 1, 3}), f"{costs}full)", *notes])


def _changes(run: RunDirectory, experiment: Experiment) -> list[str]:
    """Of where and how a run is computed, what is to be otherwise than before.

    How its outputs are scored is no matter of its training, and test corpora are part of that.
    """
    recorded = freeze(layout.read_record(run).config, str(run.config_file))
    return [
        f"{key}={','.join(map(str, new)) if isinstance(new, list | tuple) else new}"
        for key, (old, new) in differences(recorded, experiment.config).items()
        if decides(key) == "nothing" and may_change(key) and None not in (old, new)
    ]
