"""Runs rows one after the other: train, measure; finished rows are skipped."""

import dataclasses
import gc
import hashlib
import itertools
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import jax

from flaxformer_mt.config import CorpusConfig, DataConfig, differences, freeze, to_dict
from flaxformer_mt.config.digest_keys import decides, may_change
from flaxformer_mt.data.corpus import Drops, paths, read_pairs
from flaxformer_mt.data.corpus.source import open_source
from flaxformer_mt.files.atomic import replacing
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.measuring import measure, read_test
from flaxformer_mt.reproduction.planned import planned_flops, planned_parameters
from flaxformer_mt.reproduction.records import known, remove_failure, write_failure
from flaxformer_mt.reproduction.result_file import Result
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import explained, writing
from flaxformer_mt.text_table import aligned

Ending = Literal["finished", "stopped"]
Say = Callable[[str], None]
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

    `explain` gives the message of an error that isn't a bug, else None. Runs record `command`.
    """

    workdir: Path
    results: Path
    train: Train
    explain: Callable[[Exception], str | None]
    say: Say
    command: Sequence[str]

    def run_of(self, experiment: Experiment) -> RunDirectory:
        """The run's directory; experiments that are trained differently have different ones."""
        return RunDirectory(self.workdir / "runs" / experiment.run_name)

    def run(self, experiments: Iterable[Experiment]) -> list[Outcome]:
        """Runs what isn't done yet. Failures are recorded; a stop ends the loop."""
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
            self.say(f"stale: {before.note}; measuring it again")
        try:
            result = self._trained_and_measured(experiment)
        except Exception as error:
            message = self.explain(error)
            if message is None:
                # A bug keeps its trace; other rows may not meet it.
                traceback.print_exc(file=sys.stderr)
                message = f"{type(error).__name__}: {error}"
            message = message.split("\n")[0]
            write_failure(experiment, message, self.results)
            return Outcome(experiment=experiment, kind="failed", message=message)
        finally:
            # Don't hold the programs of twenty models in memory.
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
            config = dataclasses.replace(experiment.config, data=data)
            layout.create(run.path, to_dict(config), self.command)
        if self.train(run, changes) == "stopped":
            return None
        return measure(experiment, run, test, results=self.results)


def listing(experiments: Iterable[Experiment], results: Path) -> str:
    """A table of experiments, their state and their likely cost. Raises ResultError."""
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
    costs = f"all: {total:.1e} FLOPs, {left:.1e} still to do (by formula, every batch "
    return "\n".join([aligned(header, rows, left={0, 1, 3}), f"{costs}full)", *notes])


def _changes(run: RunDirectory, experiment: Experiment) -> list[str]:
    """Changed settings of where and how a run is computed, not of how it is scored."""
    recorded = freeze(layout.read_record(run).config, str(run.config_file))
    return [
        f"{key}={','.join(map(str, new)) if isinstance(new, list | tuple) else new}"
        for key, (old, new) in differences(recorded, experiment.config).items()
        if decides(key) == "nothing" and may_change(key) and None not in (old, new)
    ]


def first_pairs(
    data: DataConfig, pairs: Mapping[str, int], *, folder: Path, say: Say
) -> DataConfig:
    """`data` with at most the first `pairs[NAME]` sound pairs of each training corpus NAME.

    They are written below `folder` once per set of files. Raises CorpusError, RunDirectoryError.
    """

    def first(corpus: CorpusConfig) -> CorpusConfig:
        count = pairs.get(corpus.name)
        return corpus if count is None else _first(corpus, count, data.folder, folder, say)

    return dataclasses.replace(data, train=tuple(map(first, data.train)))


def _first(corpus: CorpusConfig, count: int, source: str, folder: Path, say: Say) -> CorpusConfig:
    if corpus.kind == "synthetic":
        return dataclasses.replace(corpus, size=min(corpus.size, count))
    key = f"data.train.{corpus.name}"
    files = open_source(corpus, source, key).files
    stamps = {name: [str(path), *paths.stamp(path)] for name, path in files.items()}
    content = json.dumps([dataclasses.asdict(corpus) | {"weight": 0.0}, stamps, count])
    place = (folder / hashlib.sha256(content.encode()).hexdigest()[:16]).absolute()
    if not place.exists():
        drops, written = Drops(), 0
        with explained(place, "written"), replacing(place) as aside:
            aside.mkdir(parents=True)
            with writing(aside / "src") as src_file, writing(aside / "tgt") as tgt_file:
                read = read_pairs(corpus, source, drops=drops, key=key)
                for pair in itertools.islice(read, count):
                    written += 1
                    src_file.write(f"{pair.src}\n")
                    tgt_file.write(f"{pair.tgt}\n")
        say(f"{key}: using the first {written:,} pairs ({count:,} wanted)")
        for example in drops.examples:
            say(f"  left out: {example}")
    src, tgt = (str(place / side) for side in ("src", "tgt"))
    return CorpusConfig(name=corpus.name, src=src, tgt=tgt, weight=corpus.weight)
