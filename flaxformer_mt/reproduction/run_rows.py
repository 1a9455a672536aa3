"""Runs rows one after the other: prepare, train, measure; finished rows are skipped.

Text that rows share is made once and by one process at a time: the first pairs, token stores.
"""

import contextlib
import dataclasses
import fcntl
import gc
import hashlib
import itertools
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax

from flaxformer_mt.config import CorpusConfig, DataConfig, differences, freeze, to_dict
from flaxformer_mt.config.digest_keys import decides, may_change
from flaxformer_mt.data.corpus import Drops, paths, read_pairs
from flaxformer_mt.data.corpus.source import open_source
from flaxformer_mt.data.prepare import prepare
from flaxformer_mt.data.prepare.manifest import settings_of
from flaxformer_mt.files.atomic import replacing
from flaxformer_mt.reproduction.experiment import Experiment
from flaxformer_mt.reproduction.measuring import measure, read_test
from flaxformer_mt.reproduction.planned import planned_flops, planned_parameters
from flaxformer_mt.reproduction.records import known, remove_failure, write_failure
from flaxformer_mt.reproduction.result_file import Result
from flaxformer_mt.rundir import RunDirectoryError, layout
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import write_json, writing
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

    `explain` gives the message of an error that is no bug, else None. `command` is noted in the
    runs as what has started them.
    """

    workdir: Path
    results: Path
    train: Train
    explain: Callable[[Exception], str | None]
    say: Say
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
            self.say(f"stale: {before.note}; measuring it again")
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
    costs = f"all: {total:.1e} FLOPs, {left:.1e} still to do (by formula, every batch "
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


def first_pairs(
    data: DataConfig, pairs: Mapping[str, int], *, folder: Path, say: Say
) -> DataConfig:
    """`data` with at most the first `pairs[NAME]` sound pairs of each training corpus NAME.

    They are written below `folder`, once: what is there of the same files is used again. Raises
    CorpusError, and RunDirectoryError where nothing can be written.
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
    place = _place(folder, [dataclasses.asdict(corpus) | {"weight": 0.0}, stamps, count]).absolute()
    src, tgt, record = place / "src", place / "tgt", place / "extract.json"
    with _alone_in(place, say):
        if not record.exists():
            drops, written = Drops(), 0
            read = read_pairs(corpus, source, drops=drops, key=key)
            with writing(src) as src_file, writing(tgt) as tgt_file:
                for pair in itertools.islice(read, count):
                    written += 1
                    src_file.write(f"{pair.src}\n")
                    tgt_file.write(f"{pair.tgt}\n")
            # Last of all: without it the files are written again.
            write_json(record, {"corpus": corpus.name, "pairs": written, "left_out": drops.counts})
            say(f"{key}: using the first {written:,} pairs ({count:,} wanted)")
            for example in drops.examples:
                say(f"  left out: {example}")
    return CorpusConfig(name=corpus.name, src=str(src), tgt=str(tgt), weight=corpus.weight)


def take_prepared(
    run: RunDirectory, data: DataConfig, *, seed: int, folder: Path, say: Say
) -> None:
    """Gives a run its vocabulary and token store.

    They are made in a folder below `folder`, once for all rows that differ in the model alone, and
    shared by hard links. Raises what `data.prepare.prepare` does, and RunDirectoryError.
    """
    places = [(c.src, c.tgt, c.path, c.split) for c in (*data.train, data.valid)]
    place = _place(folder, [settings_of(data, seed), places, data.folder], sort_keys=True)
    with _alone_in(place, say):
        prepare(data, seed=seed, directory=place, report=say, bar=sys.stderr.isatty())
    for name in ("vocabulary", "data"):
        _take(place / name, run.path / name)


def _place(folder: Path, content: Any, *, sort_keys: bool = False) -> Path:
    """The folder of what `content` decides."""
    text = json.dumps(content, sort_keys=sort_keys)
    return folder / hashlib.sha256(text.encode()).hexdigest()[:16]


@contextlib.contextmanager
def _alone_in(place: Path, say: Say) -> Iterator[None]:
    """Makes the folder `place` and holds it: the kernel lets go of it, however this process dies.

    While another process holds it this one waits. Raises RunDirectoryError.
    """
    path = place / "lock"
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = path.open("a", encoding="utf-8")
    except OSError as error:
        raise RunDirectoryError(f"{path}: cannot be written: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{place}: another process is preparing the same text; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            say(
                f"warning: {place}: this file system has no locks ({error.strerror}); make sure "
                "nothing else prepares the same text"
            )
        yield


def _take(source: Path, target: Path) -> None:
    """`source` under another name as well, its files shared: nothing writes to them again."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            shutil.copy2(source, target)

    if target.exists():
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as aside:
            shutil.copytree(source, aside, copy_function=link)
    except OSError as error:
        raise RunDirectoryError(f"{target}: cannot be written: {error.strerror}") from error
