"""A training run as a checkpoint holds it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def restored(program: Program, checkpoints: Checkpoints) -> tuple[TrainState, int, Progress]:
    """State, step and progress of the last good checkpoint."""
    abstract = program.abstract
    found = checkpoints.restore(abstract.params, _moments(abstract), abstract_ema=abstract.ema)
    state = TrainState(params=found.params, ema=found.ema, **found.opt_state)
    return state, found.step, Progress.from_dict(found.position)


def _moments(state: TrainState) -> dict[str, Any]:
    """Everything of the state that is neither parameters nor their average."""
    return {
        "step": state.step,
        "opt_state": state.opt_state,
        "bad_run": state.bad_run,
        "skipped": state.skipped,
    }
