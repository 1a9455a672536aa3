"""A training run as a checkpoint holds it, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from flaxformer_mt.data.store import StoreError
from flaxformer_mt.rundir.checkpoints import Checkpoints, Snapshot
from flaxformer_mt.rundir.selection import Kind
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.progress import Progress
from flaxformer_mt.training.state import TrainState


def snapshot(
    state: TrainState, step: int, progress: Progress, metrics: Mapping[str, float], kind: Kind
) -> Snapshot:
    """The state after `step`, where training stood, and what it is saved for."""
    return Snapshot(
        step=step,
        params=state.params,
        opt_state=_moments(state),
        ema=state.ema,
        position=progress.to_dict(),
        metrics=dict(metrics),
        kind=kind,
    )


def restored(
    program: Program, checkpoints: Checkpoints, *, data: str
) -> tuple[TrainState, int, Progress]:
    """State, step and progress of the last good checkpoint, to go on with on the pairs `data`.

    Raises StoreError if it was saved in training on others, of which alone its position is a place.
    """
    abstract = program.abstract
    found = checkpoints.restore(abstract.params, _moments(abstract), abstract_ema=abstract.ema)
    state = TrainState(params=found.params, ema=found.ema, **found.opt_state)
    progress = Progress.from_dict(found.position)
    if data and progress.data and data != progress.data:
        run = checkpoints.directory.parent
        raise StoreError(
            f"{checkpoints.directory / str(found.step)}: was trained on other pairs (digest "
            f"{progress.data[:12]}) than those in {run / 'data'} now ({data[:12]}): put back the "
            f"text that the run was prepared from, delete {run / 'data'} and run `prepare` again; "
            f"or train on the new text in a new --workdir, with --init-from {run}"
        )
    return state, found.step, dataclasses.replace(progress, data=data)


def _moments(state: TrainState) -> dict[str, Any]:
    """Everything of the state that is neither parameters nor their average."""
    return {
        "step": state.step,
        "opt_state": state.opt_state,
        "bad_run": state.bad_run,
        "skipped": state.skipped,
    }
