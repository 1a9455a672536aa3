"""What the arguments of `train` mean: the run, its settings, the weights that it begins with."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from flaxformer_mt.cli.arguments import config_of, say
from flaxformer_mt.config import (
    ConfigError,
    ExperimentConfig,
    check_resume,
    differences,
    freeze,
    load_config,
    thaw,
    to_dict,
)
from flaxformer_mt.config.digest_keys import trains
from flaxformer_mt.config.load import apply_override, refuse_vain
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.parallel import Processes
from flaxformer_mt.rundir import RunDirectoryError, layout
from flaxformer_mt.rundir.cache import local_copy
from flaxformer_mt.rundir.checkpoint_choice import chosen_weights
from flaxformer_mt.rundir.checkpoints import list_steps, load_params
from flaxformer_mt.rundir.layout import RunDirectory, read_status, reopen
from flaxformer_mt.rundir.lock import Holding, locked
from flaxformer_mt.rundir.paths import as_path
from flaxformer_mt.training.program import Program, with_dtype
from flaxformer_mt.training.state import StartError, check_same_form


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
    recorded = config_of(run)
    if spec is None:
        config = _changed(run, overrides)
    else:
        config = load_config(spec, overrides, recorded=recorded)
    if config.model.dtype == "auto":
        model = dataclasses.replace(config.model, dtype=recorded.model.dtype)
        config = dataclasses.replace(config, model=model)
    if list_steps(run.checkpoints):
        return config, check_resume(recorded, config, str(run))
    return config, differences(recorded, config)


def _changed(run: RunDirectory, overrides: Sequence[str]) -> ExperimentConfig:
    """The recorded config with overrides. Raises ConfigError if nothing would read one of these."""
    recorded = config_of(run)
    thawed = thaw(recorded)
    for override in overrides:
        apply_override(thawed, override)
    config = freeze(thawed, str(run.config_file))
    refuse_vain(config, overrides, str(run), recorded=recorded)
    return config


@contextlib.contextmanager
def recorded(
    run: RunDirectory,
    spec: str | None,
    overrides: Sequence[str],
    command: Sequence[str],
    init_from: str | None,
    processes: Processes,
) -> Iterator[tuple[ExperimentConfig | None, Holding]]:
    """Creates or continues the run: its settings, None if it is finished, and its lock.

    The first process reads and writes the run's record and holds its lock.
    """
    holding = Holding()
    with contextlib.ExitStack() as held:

        def on_this_machine(config: ExperimentConfig) -> ExperimentConfig:
            return with_dtype(config, jax.local_devices()[0])

        def begin() -> dict[str, Any] | None:
            nonlocal holding
            fresh = None
            if not layout.has_record(run):
                # Before the folder is made: a config that is refused leaves none behind.
                fresh = to_dict(on_this_machine(new_config(run, spec, overrides, init_from)))
                layout.make_folder(run)
            # Two processes may race; the lock holder writes the config.
            holding = held.enter_context(locked(run, "training on it"))
            if fresh is not None and not layout.has_record(run):
                layout.create(run.path, fresh, command)
                return fresh
            continued, changed = continued_config(run, spec, overrides)
            status = read_status(run)
            for key, (old, new) in changed.items():
                say(f"{key}: was {old!r}, now {new!r}")
            config = to_dict(on_this_machine(continued))
            finished = status if status and status.state == "finished" else None
            if finished and not trains(changed):
                if changed:
                    layout.record_start(run, config, command)
                say(f"{run}: finished at step {finished.step:,} ({finished.reason}); nothing to do")
                return None
            reopen(run, "its settings have changed")
            layout.record_start(run, config, command)
            return config

        settings = processes.first(begin)
        yield None if settings is None else freeze(settings, str(run.config_file)), holding


def run_to_start_from(
    run: RunDirectory, init_from: str | None, processes: Processes
) -> RunDirectory | None:
    """The run whose weights a new one begins with. Raises StartError for one that has none."""
    # The first process says it for all: who saw none would wait for an answer about weights that
    # nobody asks for who sees one.
    has_checkpoint = processes.first(lambda: bool(list_steps(run.checkpoints)))
    if init_from is None:
        return None
    if has_checkpoint:
        say(f"--init-from {init_from} is not used: this run goes on from its own checkpoint")
        return None
    source = layout.open_run(init_from)
    if source == run:
        raise StartError(f"--init-from {init_from}: is this run itself; name another")
    if not list_steps(source.checkpoints):
        raise StartError(f"{source}: holds no checkpoint to start from; train it first")
    return source


def weights_of(
    source: RunDirectory, vocabularies: Vocabularies, program: Program, processes: Processes
) -> Callable[[], Any]:
    """Reads the best parameters of another run, host arrays of this one's vocabulary and shapes.

    Which they are is settled here, by the first process for all: the other run may be training.
    """
    theirs = Vocabularies.load(local_copy(source.vocabulary))
    if theirs.digest != vocabularies.digest:
        raise StartError(
            f"{source}: was trained with another vocabulary ({theirs.digest[:12]}) than this run's "
            f"({vocabularies.digest[:12]}); a new --workdir takes the vocabulary along"
        )
    which = processes.first(lambda: chosen_weights(source, "auto").checkpoint)

    def read() -> Any:
        params = load_params(source, which)
        check_same_form(params, program.abstract.params, str(source))
        return jax.device_get(params)

    return read
