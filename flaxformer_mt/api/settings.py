"""Which settings a run has: those of a config file or of another run, with changes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from flaxformer_mt import config as configs
from flaxformer_mt.api import config_of
from flaxformer_mt.config import (
    ConfigError,
    ExperimentConfig,
    check_resume,
    differences,
    freeze,
    thaw,
)
from flaxformer_mt.config.load import apply_overrides, built_in_names, refuse_vain
from flaxformer_mt.rundir import RunDirectoryError, layout
from flaxformer_mt.rundir.checkpoint_choice import list_steps
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path

Overrides = Mapping[str, Any] | Sequence[str]


def load_config(
    spec: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None
) -> ExperimentConfig:
    """The settings of an experiment, to train with.

    `spec` is a built-in config (`files`, `files:base`), a config file, or a run directory, whose
    recorded settings these are. `overrides` changes some of them, by the dotted names that
    `config --explain` lists: `{"training.steps": 500, "data.train.mine.src": "train.en"}`.

    Raises ConfigError, which names the setting and the nearest valid name, and RunDirectoryError.
    """
    run = RunDirectory(as_path(spec))
    if str(spec) not in built_in_names() and layout.has_record(run):
        return changed(run, overrides or {})
    return configs.load_config(os.fspath(spec), overrides or {})


def changed(run: RunDirectory, overrides: Overrides) -> ExperimentConfig:
    """The recorded config with overrides. Raises ConfigError if nothing would read one of these."""
    recorded = config_of(run)
    thawed = thaw(recorded)
    apply_overrides(thawed, overrides)
    config = freeze(thawed, str(run.config_file))
    refuse_vain(config, overrides, str(run), recorded=recorded)
    return config


def settled(
    run: RunDirectory, spec: str | None, overrides: Overrides, init_from: str | None = None
) -> ExperimentConfig:
    """What a command means: the config file's settings, those of the run if it is there already,
    or those of the run that it starts from."""
    if layout.has_record(run):
        if spec is None:
            return changed(run, overrides)
        return configs.load_config(spec, overrides, recorded=config_of(run))
    if spec is not None:
        return configs.load_config(spec, overrides)
    if init_from is None:
        raise ConfigError(f"{run}: no run there yet: --config FILE[:VARIANT] says what to train")
    return changed(layout.open_run(init_from), overrides)


def wants_determinism(
    workdir: str, spec: str | None, overrides: Overrides, init_from: str | None
) -> bool:
    """Whether the run that these arguments mean is `training.deterministic`."""
    try:
        run = RunDirectory(as_path(workdir))
        return settled(run, spec, overrides, init_from).training.deterministic
    except (ConfigError, RunDirectoryError):
        return False  # what is wrong is said where the run begins


def continued(
    run: RunDirectory, config: ExperimentConfig
) -> tuple[ExperimentConfig, dict[str, tuple[Any, Any]]]:
    """The settings that the run goes on with, and how they differ from the recorded ones.

    Before the first checkpoint nothing is trained that a change could contradict: a first attempt
    may have failed for just that setting. Raises ConfigError for a change that is not allowed.
    """
    recorded = config_of(run)
    if config.model.dtype == "auto":
        model = dataclasses.replace(config.model, dtype=recorded.model.dtype)
        config = dataclasses.replace(config, model=model)
    if list_steps(run.checkpoints):
        return config, check_resume(recorded, config, str(run))
    return config, differences(recorded, config)
