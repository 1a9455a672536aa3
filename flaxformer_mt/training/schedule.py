"""The learning rate of the paper's section 5.3 as an Optax schedule."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from flaxformer_mt.config import ScheduleConfig


def learning_rate(config: ScheduleConfig, d_model: int) -> optax.Schedule:
    """lr = factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), with step counted from 1.

    `peak` gives the same curve by its highest value, which it takes at step `warmup_steps`. The
    schedule takes the number of updates already made (0 before the first) and returns a float32
    scalar.
    """
    warmup = config.warmup_steps
    if config.kind == "paper":
        scale = config.factor * d_model**-0.5
    else:
        scale = config.peak * warmup**0.5

    def schedule(count: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.asarray(count, jnp.float32) + 1
        return scale * jnp.minimum(step**-0.5, step * warmup**-1.5)

    return schedule
