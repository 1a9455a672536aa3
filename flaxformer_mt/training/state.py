"""What changes from step to step."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from flaxformer_mt.parallel import place_whole

Params = Any


@struct.dataclass
class TrainState:
    """The carried state of training; every leaf is an array.

    `step` counts batches seen and so drives the randomness; the optimizer's own count advances only
    with applied updates. `bad_run` is the number of consecutive updates skipped for a non-finite
    loss or gradient, `skipped` their total. `ema` is None unless a moving average is kept.
    """

    step: jax.Array
    params: Params
    opt_state: Any
    ema: Params | None
    bad_run: jax.Array
    skipped: jax.Array


def start_state(
    params: Params, optimizer: optax.GradientTransformation, *, keep_ema: bool
) -> TrainState:
    """The state before the first step."""
    zero = jnp.zeros((), jnp.int32)
    return TrainState(
        step=zero,
        params=params,
        opt_state=optimizer.init(params),
        ema=jax.tree.map(jnp.copy, params) if keep_ema else None,
        bad_run=zero,
        skipped=zero,
    )


def with_params(state: TrainState, params: Params) -> TrainState:
    """The state with other parameters, laid out as its own; shapes must agree."""
    placed = place_whole(params, jax.tree.map(lambda old: old.sharding, state.params))
    ema = state.ema
    if ema is not None:
        # Copied: the step donates both.
        ema = place_whole(params, jax.tree.map(lambda old: old.sharding, ema))
        ema = jax.tree.map(jnp.copy, ema)
    return dataclasses.replace(state, params=placed, ema=ema)
