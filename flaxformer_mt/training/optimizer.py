"""Adam and the learning rate of the paper's section 5.3, with options off by default."""

import fnmatch
import functools
from typing import Any, assert_never

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from flaxformer_mt.config import OptimizerConfig, ScheduleConfig
from flaxformer_mt.config.kinds import (
    ConstantCurve,
    CosineCurve,
    LinearCurve,
    PaperCurve,
    PeakCurve,
    StableCurve,
)
from flaxformer_mt.errors import UserError

Params = Any
path_name = functools.partial(jax.tree_util.keystr, simple=True, separator="/")


class FreezeError(UserError):
    """A freeze pattern that no parameter matches, or patterns that leave nothing to train."""


def learning_rate(config: ScheduleConfig, d_model: int, steps: int | None = None) -> optax.Schedule:
    """lr = factor * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), with step counted from 1.

    `peak` gives the same curve by its highest value, at step `warmup_steps`. Other kinds rise to
    their peak as this one does, and may end at `total_steps`, or else at the training's `steps`,
    which they need. The schedule takes the number of earlier updates and returns a float32 scalar.
    """
    warmup = config.warmup_steps
    match config.curve:
        case PaperCurve(factor=factor):
            return _inverse_root(factor * d_model**-0.5, warmup)
        case PeakCurve(peak=peak):
            return _inverse_root(peak * warmup**0.5, warmup)
        case ConstantCurve(peak=peak):
            return _after_warmup(peak, warmup, optax.constant_schedule(peak))
        case LinearCurve() | CosineCurve() | StableCurve() as curve:
            if steps is None:
                raise TypeError(f"the curve '{curve.kind}' needs the training's steps")
            return _after_warmup(curve.peak, warmup, _falling(curve, steps))
        case unknown:
            assert_never(unknown)


def _falling(curve: LinearCurve | CosineCurve | StableCurve, steps: int) -> optax.Schedule:
    """From `peak` to `final * peak`, in the steps that the warm-up leaves."""
    peak, lowest = curve.peak, curve.final * curve.peak
    left = curve.last_step(steps) - curve.warmup_steps
    match curve:
        case LinearCurve():
            return optax.linear_schedule(peak, lowest, left)
        case CosineCurve():
            return optax.cosine_decay_schedule(peak, left, alpha=curve.final)
        case StableCurve():
            decay = curve.decay(steps)
            line = optax.linear_schedule(peak, lowest, decay)
            return optax.join_schedules([optax.constant_schedule(peak), line], [left - decay])
        case unknown:
            assert_never(unknown)


def _inverse_root(scale: float, warmup: int) -> optax.Schedule:
    """The paper's curve (section 5.3, equation 3)."""

    def schedule(count: jax.typing.ArrayLike) -> jax.Array:
        step = jnp.asarray(count, jnp.float32) + 1
        return scale * jnp.minimum(step**-0.5, step * warmup**-1.5)

    return schedule


def _after_warmup(peak: float, warmup: int, after: optax.Schedule) -> optax.Schedule:
    """A line up to `peak` at step `warmup`, counted from 1, and `after` from there on."""
    joined = optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup])

    def schedule(count: jax.typing.ArrayLike) -> jax.Array:
        return jnp.asarray(joined(jnp.asarray(count, jnp.int32) + 1), jnp.float32)

    return schedule


def trainable(params: Params, freeze: tuple[str, ...]) -> Params:
    """A tree of `"train"` / `"frozen"` labels; patterns are globs over parameter paths.

    Raises FreezeError for a pattern without a match, and if nothing is left to train.
    """
    names = [path_name(path) for path, _ in jax.tree.leaves_with_path(params, _is_box)]
    for pattern in freeze:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise FreezeError(
                f"'training.freeze': no parameter matches '{pattern}'; parameters: "
                f"{', '.join(names)}"
            )

    def label(path: tuple[Any, ...], _: Any) -> str:
        frozen = any(fnmatch.fnmatchcase(path_name(path), pattern) for pattern in freeze)
        return "frozen" if frozen else "train"

    labels = jax.tree.map_with_path(label, params, is_leaf=_is_box)
    if "train" not in jax.tree.leaves(labels):
        raise FreezeError(f"'training.freeze' = {','.join(freeze)} leaves nothing to train")
    return labels


def without_frozen_gradients(params: Params, freeze: tuple[str, ...]) -> Params:
    """The same parameters; frozen ones get a zero gradient at no cost, so norm, clipping and the
    check for finiteness cover only trained parameters."""
    if not freeze:
        return params
    return jax.tree.map(
        lambda label, leaf: jax.lax.stop_gradient(leaf) if label == "frozen" else leaf,
        trainable(params, freeze),
        params,
    )


def make_optimizer(
    config: OptimizerConfig, schedule: optax.Schedule, freeze: tuple[str, ...] = ()
) -> optax.GradientTransformation:
    """Adam (.9, .98, 1e-9) under `schedule`, clipping and decay; none for frozen parameters."""
    steps: list[optax.GradientTransformation] = []
    if config.clip_norm:
        steps.append(optax.clip_by_global_norm(config.clip_norm))
    steps.append(optax.scale_by_adam(b1=config.beta1, b2=config.beta2, eps=config.epsilon))
    if config.weight_decay:
        steps.append(optax.add_decayed_weights(config.weight_decay))
    steps.append(optax.scale_by_learning_rate(schedule))
    train = optax.chain(*steps)
    if not freeze:
        return train
    return optax.partition(
        {"train": train, "frozen": optax.set_to_zero()}, lambda params: trainable(params, freeze)
    )


def _is_box(node: Any) -> bool:
    return isinstance(node, nn.meta.AxisMetadata)
