"""Adam and the learning rate of the paper's section 5.3; other optimizers and rates."""

import fnmatch
import math
from typing import Any, assert_never

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from flaxformer_mt.config import OptimizerConfig, ScheduleConfig
from flaxformer_mt.config.kinds import (
    Adafactor,
    Adam,
    AdamW,
    ConstantCurve,
    CosineCurve,
    LinearCurve,
    Lion,
    Muon,
    PaperCurve,
    PeakCurve,
    StableCurve,
    UpdateRule,
)
from flaxformer_mt.errors import UserError
from flaxformer_mt.model.parameters import is_kernel, kernel_axes, path_name

Params = Any


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
    """Adam (.9, .98, 1e-9) or another rule, under `schedule`; clipping before it, decoupled weight
    decay after it. Frozen parameters have no part in it.

    Arrays of `init`'s state that have a parameter's shape have its logical axis names, too.
    """
    rule = config.rule
    steps: list[optax.GradientTransformation] = []
    if config.clip_norm:
        steps.append(optax.clip_by_global_norm(config.clip_norm))
    steps.append(_direction(rule))
    if rule.weight_decay:
        decayed = None if isinstance(rule, Adam) else _matrices
        steps.append(optax.add_decayed_weights(rule.weight_decay, decayed))
    steps.append(optax.scale_by_learning_rate(schedule))
    train = optax.chain(*steps)
    if not freeze:
        return train
    return optax.partition(
        {"train": train, "frozen": optax.set_to_zero()}, lambda params: trainable(params, freeze)
    )


def _direction(rule: UpdateRule) -> optax.GradientTransformation:
    """The update for a learning rate of -1."""
    match rule:
        case Adam() | AdamW():
            return optax.scale_by_adam(b1=rule.beta1, b2=rule.beta2, eps=rule.epsilon)
        case Adafactor():
            return _adafactor(rule)
        case Lion():
            return optax.scale_by_lion(b1=rule.beta1, b2=rule.beta2)
        case Muon():
            return _muon(rule)
        case unknown:
            assert_never(unknown)


# A head's projection has d_k columns: at Optax's 128, no attention would be factored.
_LEAST_FACTORED = 32


def _adafactor(rule: Adafactor) -> optax.GradientTransformation:
    """Algorithms 4 and 6 of Shazeer and Stern (arXiv 1804.04235), without momentum.

    Stacked layers (`model.scan_layers`) count as one parameter where a root mean square is taken.
    """
    factored = optax.scale_by_factored_rms(
        decay_rate=rule.decay_exponent, min_dim_size_to_factor=_LEAST_FACTORED
    )

    def init(params: Params) -> optax.OptState:
        # Means over an axis don't have the parameter's axes, and are small: whole on each device.
        state = factored.init(jax.tree.map(_without_box, params, is_leaf=_is_box))
        whole = jax.tree.map(_boxed_as, params, state.v, is_leaf=_is_box)
        return state._replace(v=whole)

    steps = [
        optax.GradientTransformation(init, factored.update),
        optax.clip_by_block_rms(1.0),  # their d (section 6)
    ]
    if rule.parameter_scale:
        steps.append(optax.scale_by_param_block_rms())
    return optax.chain(*steps)


def _muon(rule: Muon) -> optax.GradientTransformation:
    """Muon for the matrices of layers, Adam for the other parameters."""
    matrices = optax.chain(
        scale_by_muon(beta=rule.momentum, weight_dimension_numbers=_matrix_axes),
        optax.stateless(_as_large_as_adam),
    )
    others = optax.scale_by_adam(b1=rule.beta1, b2=rule.beta2, eps=rule.epsilon)

    def labels(params: Params) -> Params:
        return jax.tree.map_with_path(
            lambda path, _: "matrices" if is_kernel(path) else "others", params, is_leaf=_is_box
        )

    return optax.partition({"matrices": matrices, "others": others}, labels)


def _as_large_as_adam(updates: Params, _: Params | None) -> Params:
    """Orthogonal updates with a root mean square of 0.2, about Adam's (arXiv 2502.16982, 2.2)."""

    def scaled(axes: MuonDimensionNumbers, update: jax.Array) -> jax.Array:
        sides = axes.reduction_axis, axes.output_axis
        longest = max(math.prod(update.shape[axis] for axis in side) for side in sides)
        return 0.2 * math.sqrt(longest) * update

    return jax.tree.map(scaled, _matrix_axes(updates), updates, is_leaf=_is_axes)


def _matrix_axes(params: Params) -> Params:
    """`kernel_axes` of each layer's matrix, as Muon wants them."""
    return jax.tree.map_with_path(
        lambda path, leaf: MuonDimensionNumbers(*kernel_axes(path, leaf.ndim)), params
    )


def _matrices(params: Params) -> Params:
    """Which parameters are matrices, of layers or of embeddings, and not vectors."""

    def is_matrix(path: tuple[Any, ...], leaf: Any) -> bool:
        is_table = path[0].key == "embedding" and _without_box(leaf).ndim == 2
        return is_kernel(path) or is_kernel(path[:-1]) or is_table  # or an adapter's

    return jax.tree.map_with_path(is_matrix, params, is_leaf=_is_box)


def _boxed_as(param: Any, moment: Any) -> Any:
    """A moment with the names of the parameter's axes, if it has its shape."""
    if _is_box(param) and jnp.shape(param.value) == jnp.shape(moment):
        return param.replace_boxed(moment)
    return moment


def _without_box(leaf: Any) -> Any:
    return leaf.value if _is_box(leaf) else leaf


def _is_axes(node: Any) -> bool:
    return isinstance(node, MuonDimensionNumbers)


def _is_box(node: Any) -> bool:
    return isinstance(node, nn.meta.AxisMetadata)
