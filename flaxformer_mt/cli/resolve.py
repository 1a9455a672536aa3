"""Which configuration the arguments of `train` mean, for a new run and for one that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flaxformer_mt.config import (
    ConfigError,
    ExperimentConfig,
    check_resume,
    differences,
    freeze,
    load_config,
    thaw,
)
from flaxformer_mt.config.load import apply_override, refuse_vain
from flaxformer_mt.rundir import layout
from flaxformer_mt.rundir.checkpoints import list_steps
from flaxformer_mt.rundir.errors import RunDirectoryError
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path


def wants_determinism(
    workdir: str, spec: str | None, overrides: Sequence[str], init_from: str | None
) -> bool:
    """Whether the run that these arguments mean is `training.deterministic`."""
    try:
        run = RunDirectory(as_path(workdir))
        if spec is None and layout.has_record(run):
            config, _ = continued_config(run, spec, overrides)
        else:
            config = new_config(run, spec, overrides, init_from)
        return config.training.deterministic
    except (ConfigError, RunDirectoryError):
        return False  # what is wrong is said where the run begins


def new_config(
    run: RunDirectory, spec: str | None, overrides: Sequence[str], init_from: str | None
) -> ExperimentConfig:
    """The config of a run that is not there yet: the file's, or that of the run it starts from."""
    if spec is not None:
        return load_config(spec, overrides)
    if init_from is None:
        raise ConfigError(f"{run}: no run there yet: --config FILE[:VARIANT] says what to train")
    return _changed(layout.open_run(init_from), overrides)


def continued_config(
    run: RunDirectory, spec: str | None, overrides: Sequence[str]
) -> tuple[ExperimentConfig, dict[str, tuple[Any, Any]]]:
    """The recorded config with the changes asked for, if allowed, and those changes.

    Before the first checkpoint nothing is trained that a change could contradict: a first attempt
    may have failed for just that setting.
    """
    recorded = freeze(layout.read_record(run).config, str(run.config_file))
    if spec is None:
        config = _changed(run, overrides)
    else:
        config = load_config(spec, overrides, recorded=recorded)
    if list_steps(run.checkpoints):
        return config, check_resume(recorded, config, str(run))
    return config, differences(recorded, config)


def _changed(run: RunDirectory, overrides: Sequence[str]) -> ExperimentConfig:
    """The recorded config with overrides. Raises ConfigError also for what these say in vain."""
    recorded = freeze(layout.read_record(run).config, str(run.config_file))
    thawed = thaw(recorded)
    for override in overrides:
        apply_override(thawed, override)
    config = freeze(thawed, str(run.config_file))
    refuse_vain(config, overrides, str(run), recorded=recorded)
    return config
