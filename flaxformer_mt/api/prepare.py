"""Preparing a run's text without training on it, from Python and by the command."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flaxformer_mt.api import say
from flaxformer_mt.api.prepared_text import begin_folder, planner_of, prepared, vocabularies_of
from flaxformer_mt.api.settings import continued, created
from flaxformer_mt.cluster import Engine, EngineName, Ray, engine_of, workers
from flaxformer_mt.config import ConfigError, ExperimentConfig, to_dict
from flaxformer_mt.config.digest_keys import trains
from flaxformer_mt.data.planner import planned_pass
from flaxformer_mt.data.prepare import report
from flaxformer_mt.data.prepare.manifest import read_manifest
from flaxformer_mt.data.store import Store
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.layout import RunDirectory, reopen
from flaxformer_mt.rundir.lock import locked
from flaxformer_mt.rundir.paths import as_path

if TYPE_CHECKING:
    from flaxformer_mt.data.prepare.spread import Cluster


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparation:
    """A run's prepared text: what was read and dropped, and the batches that it makes."""

    run: RunDirectory
    config: ExperimentConfig  # as the run records it
    store: Store  # token ids of the training and validation pairs
    manifest: Mapping[str, Any]  # what was read, dropped and why, as in data/manifest.json

    def describe(self) -> str:
        """Pairs read, kept and dropped by each rule, with examples, and lengths."""
        return report.describe(dict(self.manifest))

    def check_validation(self) -> None:
        """Raises PlanError if `data.batch` has no room for the validation pairs."""
        planned_pass(self.store.valid, self.config.data.batch)

    def inspect(self) -> Iterator[str]:
        """The shapes of the batches, then the first ten batches as text."""
        vocabularies = vocabularies_of(self.run)
        planner = planner_of(self.config, self.store, vocabularies)
        yield report.shapes_table(planner)
        yield from report.batches_as_text(planner, vocabularies)


def prepare(
    config: ExperimentConfig,
    workdir: str | os.PathLike[str],
    *,
    engine: Engine | EngineName = "local",
    command: Sequence[str] | None = None,
) -> Preparation:
    """Makes or verifies the vocabulary and token store of the run in `workdir`, which `train` then
    uses.

    A new run is created with `config`; an existing one takes over the settings that it may still
    change. With `engine` "ray" or `Ray(address=...)` the CPUs of a cluster read and encode, and
    `workdir` gets the same. `command` is recorded as what started it.

    Raises ConfigError, CorpusError, PrepareError, RunDirectoryError, and ClusterError.
    """
    cluster = _cluster(engine_of(engine))
    run = RunDirectory(as_path(workdir))
    command = sys.argv if command is None else command
    changed: dict[str, tuple[Any, Any]] = {}
    begin_folder(run, config)
    with locked(run, "preparing its data"):
        if layout.has_record(run):
            config, changed = continued(run, config)
        else:
            config = created(config)
            layout.create(run.path, to_dict(config), command)
        with prepared(run, config, cluster=cluster, thorough=True) as store:
            if changed:
                # The record has the settings of the prepared data, which `train` then uses.
                if trains(changed):
                    reopen(run, "its settings have changed")
                layout.record_start(run, to_dict(config), command)
    return Preparation(
        run=run, config=config, store=store, manifest=read_manifest(local_copy(run.data))
    )


def _cluster(engine: Engine) -> Cluster | None:
    """The cluster that reads and encodes; None for this machine."""
    if not isinstance(engine, Ray):
        return None
    if engine.chips is not None:
        raise ConfigError("text is prepared on a CPU per worker: leave out `chips`")
    return functools.partial(workers, address=engine.address, say=say, chips=1, kinds=("CPU",))
