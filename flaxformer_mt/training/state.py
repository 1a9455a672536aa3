"""What changes from step to step, and starting from another run's weights."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from flaxformer_mt.errors import UserError
from flaxformer_mt.parallel.mesh import place_whole
from flaxformer_mt.rundir.digests import flatten_paths

Params = Any


@struct.dataclass
class TrainState:
    """The carried state of training; every leaf is an array.

    `step` counts batches and drives the randomness; the optimizer's own count advances only with
    applied updates. `bad_run` is the number of consecutive updates skipped for a non-finite loss or
    gradient, `skipped` their total. `ema` is None unless a moving average is kept.
    """

    step: jax.Array
    params: Params
    opt_state: Any
    ema: Params | None
    bad_run: jax.Array
    skipped: jax.Array


def with_params(state: TrainState, params: Params) -> TrainState:
    """The state with other parameters, laid out as its own; shapes must agree."""

    def as_in(old: Params) -> Params:
        return place_whole(params, jax.tree.map(lambda leaf: leaf.sharding, old))

    # The average is copied: the step donates both.
    ema = None if state.ema is None else jax.tree.map(jnp.copy, as_in(state.ema))
    return dataclasses.replace(state, params=as_in(state.params), ema=ema)


class StartError(UserError):
    """Weights that do not fit the new run's model."""


def check_same_form(params: Any, abstract: Any, origin: str) -> None:
    """Raises StartError naming every parameter that is missing or has another shape."""
    have, want = (
        {path: leaf.shape for path, leaf in flatten_paths(tree).items()}
        for tree in (params, abstract)
    )
    problems = [
        f"{name}: {have.get(name, 'absent')} there, {want.get(name, 'absent')} here"
        for name in sorted({*have, *want})
        if have.get(name) != want.get(name)
    ]
    if problems:
        more = [f"and {len(problems) - 5} more"] if problems[5:] else []
        shown = "; ".join(problems[:5] + more)
        raise StartError(f"{origin}: its weights do not fit this model: {shown}")
