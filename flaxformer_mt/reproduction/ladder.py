"""Rows one after the other: prepared, trained, measured; what is done is not done again."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import jax

from flaxformer_mt.config import DataConfig, ExperimentConfig, differences, freeze, to_dict
from flaxformer_mt.config.resume import may_change
from flaxformer_mt.data.prepare import prepare
from flaxformer_mt.data.prepare.manifest import settings_of
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.extract import extracted
from flaxformer_mt.reproduction.measuring import TestSet, measure, read_test
from flaxformer_mt.reproduction.records import known, remove_failure, write_failure
from flaxformer_mt.reproduction.result_file import Result
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.lock import locked

STOPPED = 75  # as `train` says that it was stopped on request and goes on when called again
# Trains or goes on with a run, with settings (`a.b=value`) that a run may change; exit status.
Train = Callable[[RunDirectory, Sequence[str]], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """How one experiment ended. `kept`: it was done before."""

    experiment: Experiment
    kind: Literal["kept", "measured", "stopped", "failed"]
    message: str = ""
    result: Result | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ladder:
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
        """Other settings are another directory: nothing goes on with a run that is not its own."""
        return RunDirectory(self.workdir / "runs" / f"{experiment.name}-{experiment.digest[:8]}")

    def climb(self, experiments: Iterable[Experiment]) -> list[Outcome]:
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
            return Outcome(experiment=experiment, kind="kept", result=before.result)
        if before.state == "stale":
            self.say(f"stale: {before.note}; it is measured again")
        try:
            status, result = self._trained_and_measured(experiment)
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
            kind: Literal["stopped", "failed"] = "stopped" if status == STOPPED else "failed"
            message = f"training ended with status {status}"
            if kind == "failed":
                write_failure(experiment, message, self.results)
            return Outcome(experiment=experiment, kind=kind, message=message)
        remove_failure(experiment, self.results)
        return Outcome(experiment=experiment, kind="measured", result=result)

    def _trained_and_measured(self, experiment: Experiment) -> tuple[int, Result | None]:
        test: TestSet = read_test(experiment)
        run = self.run_of(experiment)
        config = self._with_extract(experiment)
        overrides = self._begin(run, config)
        status = self.train(run, overrides)
        if status:
            return status, None
        return 0, measure(experiment, run, test, results=self.results)

    def _with_extract(self, experiment: Experiment) -> ExperimentConfig:
        if experiment.pairs is None:
            return experiment.config
        data = extracted(
            experiment.config.data,
            experiment.pairs,
            folder=self.workdir / "extracts",
            say=self.say,
        )
        return dataclasses.replace(experiment.config, data=data)

    def _begin(self, run: RunDirectory, config: ExperimentConfig) -> list[str]:
        """Makes the run if it is not there; what a run that goes on is to change."""
        if layout.has_record(run):
            recorded = freeze(layout.read_record(run).config, str(run.config_file))
            changed = differences(recorded, config)
            return [f"{key}={_text(new)}" for key, (_, new) in changed.items() if may_change(key)]
        prepared = self._prepared(config.data, config.training.seed)
        for name in ("vocabulary", "data"):
            _take(prepared / name, run.path / name)
        layout.create(run.path, to_dict(config), self.command)
        return []

    def _prepared(self, data: DataConfig, seed: int) -> Path:
        """A folder with vocabulary and token store: rows that differ in the model share them."""
        places = [(c.src, c.tgt, c.path, c.split) for c in (*data.train, data.valid)]
        content = json.dumps([settings_of(data, seed), places, data.folder], sort_keys=True)
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        place = RunDirectory(self.workdir / "prepared" / digest)
        try:
            place.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirectoryError(f"{place}: cannot be written: {error.strerror}") from error
        with locked(place, "preparing its data"):
            prepare(data, seed=seed, directory=place.path, report=self.say, bar=sys.stderr.isatty())
        return place.path


def _text(value: object) -> str:
    """A setting's value as an override has it."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _take(source: Path, target: Path) -> None:
    """`source` under another name as well, its files shared: nothing writes to them again."""
    if target.exists():
        return
    aside = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, aside, copy_function=_link)
        os.replace(aside, target)
    except OSError as error:
        raise RunDirectoryError(f"{target}: cannot be written: {error.strerror}") from error


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
