"""The state of training and one update of it, a pure function: loss, gradient, optimizer."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.pipeline import Batch  # there it becomes a pytree
from flaxformer_mt.model.embedding import softmax_bias, softmax_table, table_copies
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.mesh import place_whole, rows_split
from flaxformer_mt.training.loss import LossSums, smoothed_cross_entropy
from flaxformer_mt.training.optimizer import without_frozen_gradients

Params = Any
Metrics = dict[str, jax.Array]


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


TrainStep = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def batch_loss(
    model: Transformer,
    config: ExperimentConfig,
    params: Params,
    batch: Batch,
    dropout_key: jax.Array | None,
) -> LossSums:
    """Loss sums of one batch; without a key there is no dropout."""
    parts = rows_split()  # of the rows, one a device
    variables: dict[str, Any] = {"params": params}
    table: Any = nn.with_logical_constraint(softmax_table(params, config.model), ("vocab", None))
    if parts > 1:
        variables["copies"] = table_copies(params, config.model, parts)
        table = softmax_table(variables["copies"], config.model)
    hidden: Any = model.apply(
        variables,
        batch.src,
        batch.tgt_in,
        src_segment_ids=batch.src_segment_ids,
        tgt_segment_ids=batch.tgt_segment_ids,
        src_positions=batch.src_positions,
        tgt_positions=batch.tgt_positions,
        deterministic=dropout_key is None,
        rngs={} if dropout_key is None else {"dropout": dropout_key},
    )
    bias = softmax_bias(params, config.model)
    loss = functools.partial(
        smoothed_cross_entropy,
        bias=bias,
        smoothing=config.training.label_smoothing,
        chunk=config.training.loss_chunk,
        dtype=config.model.dtype,
        types=model.tgt_vocab_size,
    )
    labels = jnp.asarray(batch.tgt_out)
    weights = jnp.asarray(batch.tgt_segment_ids > 0, jnp.float32)
    if parts == 1:
        return loss(hidden, table, labels, weights)

    def split(x: jax.Array) -> jax.Array:
        return x.reshape(parts, -1, *x.shape[1:])

    sums = jax.vmap(loss)(split(hidden), table, split(labels), split(weights))
    return jax.tree.map(jnp.sum, sums)


def step_key(seed: int, step: jax.Array) -> jax.Array:
    """A step's dropout key depends on nothing else: step n is the same after any restart."""
    return jax.random.fold_in(jax.random.key(seed), step)


@dataclasses.dataclass(frozen=True)
class UpdateLayout:
    params: Any
    update: Any


def make_train_step(
    model: Transformer,
    config: ExperimentConfig,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    layout: UpdateLayout | None,
) -> TrainStep:
    """`(state, batch) -> (state, metrics)`, to be jitted with the state donated.

    The gradient is that of the smoothed loss summed over the batch's target tokens and divided by
    their number, also with micro-batches. An update whose loss or gradient isn't finite changes no
    parameters, moments or average, and is counted. `schedule` is the optimizer's, for the metrics.

    With a `layout`, gradients are summed into the parts that it names and each device updates its
    own; the jitted step's shardings say how the parameters are laid out then.
    """
    settings = config.training.optimizer
    narrow = config.training.exchange_dtype != "float32"

    def objective(params: Params, batch: Batch, tokens: jax.Array, key: jax.Array) -> Any:
        params = without_frozen_gradients(params, config.training.freeze)
        sums = batch_loss(model, config, params, batch, key)
        return sums.objective / tokens, sums.nll / tokens

    def gradient(params: Params, batch: Batch, tokens: jax.Array, key: jax.Array) -> Any:
        """((objective, nll), gradient) of the whole batch, micro-batch by micro-batch."""
        value_and_grad = jax.value_and_grad(objective, has_aux=True)
        if settings.accumulation == 1:
            return value_and_grad(params, batch, tokens, key)
        parts = settings.accumulation
        # Row i goes to micro-batch i % parts: each device has rows in every micro-batch.
        micro = jax.tree.map(
            lambda x: jnp.moveaxis(x.reshape(-1, parts, *x.shape[1:]), 1, 0), batch
        )

        def add(total: Any, part: tuple[Batch, jax.Array]) -> tuple[Any, None]:
            micro_batch, index = part
            value = value_and_grad(params, micro_batch, tokens, jax.random.fold_in(key, index))
            return jax.tree.map(jnp.add, total, value), None

        zero = jnp.zeros((), jnp.float32)
        start = ((zero, zero), jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params))
        return jax.lax.scan(add, start, (micro, jnp.arange(parts)))[0]

    def train_step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        tokens = jnp.maximum(batch.tgt_tokens, 1).astype(jnp.float32)
        key = step_key(config.training.seed, state.step)
        before = state.params
        used = _exchanged(state.params, config)
        if layout is not None and narrow:
            # Cast first, gathered then.
            used = jax.lax.with_sharding_constraint(used, layout.update)
            used = jax.lax.with_sharding_constraint(used, layout.params)
        (loss, nll), grads = gradient(used, batch, tokens, key)
        if layout is not None:
            # Whole first: if asked for parts at once, the partitioner would cut each gradient's
            # product into a ring of small ones. A sum whose parts different devices use is
            # scattered anyway.
            grads = jax.lax.with_sharding_constraint(grads, layout.params)
            grads, before = (
                jax.lax.with_sharding_constraint(tree, layout.update) for tree in (grads, before)
            )
        grads = optax.tree.cast(grads, jnp.float32)
        norm = optax.tree.norm(grads)
        good = jnp.isfinite(loss) & jnp.isfinite(norm)

        updates, opt_state = optimizer.update(grads, state.opt_state, before)
        params = optax.apply_updates(before, updates)
        new = (params, opt_state)
        old = (before, state.opt_state)
        # A select, not a branch: it fuses into the optimizer's own pass over the parameters.
        params, opt_state = jax.tree.map(lambda n, o: jnp.where(good, n, o), new, old)
        ema = state.ema
        if ema is not None:
            moved = optax.incremental_update(params, ema, 1 - settings.ema_decay)
            ema = jax.tree.map(lambda n, o: jnp.where(good, n, o), moved, ema)
        applied = state.step - state.skipped
        bad = jnp.where(good, 0, 1).astype(jnp.int32)
        state = TrainState(
            step=state.step + 1,
            params=params,
            opt_state=opt_state,
            ema=ema,
            bad_run=(state.bad_run + bad) * bad,
            skipped=state.skipped + bad,
        )
        metrics = {
            "loss": loss,
            "nll": nll,
            "gradient_norm": norm,
            "learning_rate": schedule(applied),
            "src_tokens": batch.src_tokens,
            "tgt_tokens": batch.tgt_tokens,
            "sentences": batch.sentences,
            "bad_run": state.bad_run,
            "skipped": state.skipped,
        }
        return state, metrics

    return train_step


def _exchanged(params: Params, config: ExperimentConfig) -> Params:
    """The parameters as devices exchange them: matrices in `training.exchange_dtype`, with
    gradients of that type.

    Vectors (biases, normalisation) are a thousandth of the traffic and stay in float32.
    """
    dtype = config.training.exchange_dtype
    if dtype == "float32":
        return params

    def cast(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
        stacked = config.model.scan_layers and jax.tree_util.DictKey("layers") in path
        return leaf.astype(dtype) if leaf.ndim > 1 + stacked else leaf

    return jax.tree_util.tree_map_with_path(cast, params)
