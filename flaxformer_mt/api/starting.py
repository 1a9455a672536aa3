"""Starting a new run from another run's weights, vocabulary and settings."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import jax

from flaxformer_mt.api import config_of, say
from flaxformer_mt.api.prepared_text import vocabularies_of
from flaxformer_mt.config import WEIGHT_FIELDS, ExperimentConfig, TrainingConfig
from flaxformer_mt.data.extended_vocabulary import with_types_of
from flaxformer_mt.data.vocabulary import Vocabularies
from flaxformer_mt.errors import UserError
from flaxformer_mt.model.embedding import SOURCE_TABLE, with_rows
from flaxformer_mt.parallel.processes import Processes
from flaxformer_mt.rundir import DamagedError, layout
from flaxformer_mt.rundir.checkpoint_choice import (
    best_or_latest,
    chosen_weights,
    list_steps,
    select_step,
)
from flaxformer_mt.rundir.checkpoint_format import read_meta
from flaxformer_mt.rundir.checkpoints import read_snapshot
from flaxformer_mt.rundir.digests import flatten_paths
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.paths import as_path
from flaxformer_mt.rundir.weights import load_params
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.progress import without_params
from flaxformer_mt.training.step import TrainState, continuing, with_params


class StartError(UserError):
    """Weights of another run that this run can't start from."""


def run_to_start_from(
    run: RunDirectory, init_from: str, processes: Processes
) -> RunDirectory | None:
    """The other run whose weights a new one begins with; None for a run that has begun. Raises
    StartError if it has none."""
    # The first process decides for all: if they saw different states, some would wait forever.
    if processes.first(lambda: bool(list_steps(run.checkpoints))):
        say(f"--init-from {init_from} is ignored: this run resumes from its own checkpoint")
        return None
    return require_trained(run, init_from)


def require_trained(
    run: RunDirectory, init_from: str, config: ExperimentConfig | None = None
) -> RunDirectory:
    """The run `init_from`. Raises StartError unless it is another run, with weights that fit
    `config`."""
    if RunDirectory(as_path(init_from)) == run:
        raise StartError(f"--init-from {init_from}: is this run itself; choose another")
    source = layout.open_run(init_from)
    if not list_steps(source.checkpoints):
        raise StartError(f"{source}: has no checkpoint to start from; train it first")
    if config is not None:
        theirs = config_of(source)
        check_same_sizes(theirs, config, str(source))
        before, after = theirs.model.positions, config.model.positions
        if before != after:
            say(
                f"{source}: 'model.positions' = {before} there, {after} here: its weights need "
                "some hundred steps to adapt to that"
            )
        if config.training.keep_moments:
            check_same_moments(theirs, config, str(source))
            _require_moments(source)
    return source


def check_same_sizes(source: ExperimentConfig, new: ExperimentConfig, origin: str) -> None:
    """Raises StartError for settings with which weights of `source` can't start `new`."""
    names = [field.name for field in WEIGHT_FIELDS]
    if "learned" not in (source.model.positions, new.model.positions):
        names.remove("positions")  # no weights, whichever sinusoids they are
    if source.model.positions == new.model.positions == "learned":
        names.append("max_length")
    names.append("scan_layers")  # weights of all layers in one array, or each layer's own
    different = [
        f"'model.{name}' = {getattr(source.model, name)} there, {getattr(new.model, name)} here"
        for name in names
        if getattr(source.model, name) != getattr(new.model, name)
    ]
    if different:
        raise StartError(
            f"{origin}: its weights do not fit this model: {'; '.join(different)}: set them as "
            "there, or leave out --config to take over its settings"
        )


def check_same_moments(source: ExperimentConfig, new: ExperimentConfig, origin: str) -> None:
    """Raises StartError for settings with which `source`'s moments can't start `new`."""
    if source.training.adapters.rank:
        raise StartError(
            f"{origin}: its moments are those of its adapters: leave out 'training.keep_moments'"
        )

    def form(config: ExperimentConfig) -> dict[str, Any]:
        optimizer = config.training.optimizer
        return {
            "optimizer.kind": optimizer.kind,
            "optimizer.clip_norm": "off" if optimizer.clip_norm == 0 else "on",
            "optimizer.weight_decay": "off" if optimizer.weight_decay == 0 else "on",
            "freeze": list(config.training.freeze),
        }

    before, after = form(source), form(new)
    different = [
        f"'training.{name}' is {before[name]} there, {after[name]} here"
        for name in before
        if before[name] != after[name]
    ]
    if different:
        raise StartError(
            f"{origin}: its moments do not fit this optimizer: {'; '.join(different)}: set them as "
            "there, or leave out 'training.keep_moments'"
        )


def _require_moments(source: RunDirectory) -> None:
    """Raises StartError for a run that was imported, and never trained here."""
    folder = source.checkpoints / str(select_step(source.checkpoints, best_or_latest(source)))
    if not read_meta(folder)["leaves"]["opt_state"]:
        raise StartError(
            f"{folder}: has no moments, as after an import: leave out 'training.keep_moments'"
        )


def beginning_of(
    source: RunDirectory, vocabularies: Vocabularies, program: Program, processes: Processes
) -> Callable[[TrainState], TrainState]:
    """Makes a freshly drawn state one that begins where another run is best.

    With `training.keep_moments` that is its best checkpoint, weights and moments, but never the
    average, which has no moments; a learning rate begins anew in any case.
    """
    if not program.config.training.keep_moments:
        read = weights_of(source, vocabularies, program, processes)
        return lambda state: with_params(state, read())

    if vocabularies.digest != vocabularies_of(source).digest:
        raise StartError(
            f"{source}: its vocabulary differs from this run's: leave out 'training.keep_moments'"
        )

    def beginning(state: TrainState) -> TrainState:
        # Only now: a run that is training removes the checkpoints that others have surpassed.
        step = processes.first(lambda: select_step(source.checkpoints, best_or_latest(source)))
        folder = source.checkpoints / str(step)
        say(f"starting with the weights and the moments of {folder}")
        abstract = program.abstract
        for fresh in jax.tree.leaves((state.params, state.opt_state)):
            if fresh.ndim:
                fresh.delete()  # the devices may not have room for both
        trees = {"params": abstract.params, "opt_state": without_params(abstract)}
        try:
            read = read_snapshot(folder, trees)
        except DamagedError as error:
            raise StartError(
                f"{error}: restore the checkpoint from a copy, or leave out 'training.keep_moments'"
            ) from error
        return continuing(state, read.params, read.opt_state["opt_state"])

    return beginning


def weights_of(
    source: RunDirectory, vocabularies: Vocabularies, program: Program, processes: Processes
) -> Callable[[], Any]:
    """Reads another run's best parameters, as the first process chooses them, into host arrays,
    with rows for the types that this run's vocabulary has beyond that run's."""
    theirs = vocabularies_of(source)
    extended = with_types_of(theirs, program.config.data)
    if vocabularies.digest not in (theirs.digest, extended.digest):
        raise StartError(f"{source}: its vocabulary differs from this run's; use a new --workdir")
    before, after = ((pair.src.size, pair.tgt.size) for pair in (theirs, vocabularies))
    if before != after:
        _require_trained_rows(program.config)
    checkpoint = processes.first(lambda: chosen_weights(source, "auto").checkpoint)
    if _has_rate_of_adapters(program.config.training, config_of(source).training):
        say("note: all weights are trained with the learning rate of that run's adapters")

    def read() -> Any:
        # On the host: all processes must add the same rows.
        params = jax.device_get(load_params(source, checkpoint))
        if before != after:
            params = with_rows(params, program.config.model, before, after)
        check_same_form(params, program.abstract_weights, str(source))
        return params

    return read


def _has_rate_of_adapters(new: TrainingConfig, former: TrainingConfig) -> bool:
    """Whether all weights get the learning rate that another run's adapters had, often too high."""
    only_former = former.adapters.rank > 0 and new.adapters.rank == 0
    return only_former and new.schedule == former.schedule


def _require_trained_rows(config: ExperimentConfig) -> None:
    """Raises StartError if the rows of new types would stay as they begin: all alike."""
    if config.training.adapters.rank:
        raise StartError(
            "the vocabulary has new types, whose embeddings would all stay alike, since only "
            "adapters are trained: leave out 'training.adapters.rank'"
        )
    table = f"embedding/{SOURCE_TABLE[config.model.tie]}"
    for pattern in config.training.freeze:
        if fnmatch.fnmatchcase(table, pattern):
            raise StartError(
                f"'training.freeze' has '{pattern}', but the vocabulary has new types, whose "
                f"embeddings in {table} would all stay alike: leave it out"
            )


def check_same_form(params: Any, abstract: Any, origin: str) -> None:
    """Raises StartError naming every parameter that is missing or has another shape."""
    source_shapes, shapes = _shapes(params), _shapes(abstract)
    problems = [
        f"{name}: {source_shapes.get(name, 'absent')} there, {shapes.get(name, 'absent')} here"
        for name in sorted({*source_shapes, *shapes})
        if source_shapes.get(name) != shapes.get(name)
    ]
    if len(problems) > 5:
        problems[5:] = [f"and {len(problems) - 5} more"]
    if problems:
        raise StartError(f"{origin}: its weights do not fit this model: {'; '.join(problems)}")


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {path: leaf.shape for path, leaf in flatten_paths(tree).items()}
