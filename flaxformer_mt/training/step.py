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
from flaxformer_mt.model.parameters import is_stacked
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.mesh import (
    copies,
    copies_with_scattered_sum,
    place_whole,
    rows_split,
)
from flaxformer_mt.training.loss import LossSums, smoothed_cross_entropy
from flaxformer_mt.training.optimizer import without_frozen_gradients

Params = Any
Metrics = dict[str, jax.Array]
ObjectiveAndGradient = tuple[tuple[jax.Array, jax.Array], Params]  # ((objective, nll), gradient)


@struct.dataclass
class TrainState:
    """The carried state of training; every leaf is an array.

    `step` counts batches and drives the randomness; the optimizer's own count advances only with
    applied updates. `bad_run` is the number of consecutive updates skipped for a non-finite loss or
    gradient, `skipped` their total. `ema` is None unless a moving average is kept. `base` is None
    unless the parameters are adapters (`training.adapters`): then it is the model's frozen weights.
    """

    step: jax.Array
    params: Params
    opt_state: Any
    ema: Params | None
    bad_run: jax.Array
    skipped: jax.Array
    base: Params | None = None


def with_params(state: TrainState, params: Params) -> TrainState:
    """The state with other weights of the model, laid out as its own; shapes must agree."""

    def laid_out_as(old: Params) -> Params:
        return place_whole(params, jax.tree.map(lambda leaf: leaf.sharding, old))

    if state.base is not None:
        return dataclasses.replace(state, base=laid_out_as(state.base))
    # The average is copied: the step donates both.
    ema = None if state.ema is None else jax.tree.map(jnp.copy, laid_out_as(state.ema))
    return dataclasses.replace(state, params=laid_out_as(state.params), ema=ema)


def continuing(state: TrainState, params: Params, opt_state: Any) -> TrainState:
    """The state with parameters and moments that are laid out as its own, at the first step of the
    learning rate."""

    def but_the_schedule(own: Any, other: Any) -> Any:
        return own if isinstance(own, optax.ScaleByScheduleState) else other

    moments = jax.tree.map(
        but_the_schedule,
        state.opt_state,
        opt_state,
        is_leaf=lambda node: isinstance(node, optax.ScaleByScheduleState),
    )
    ema = None
    if state.ema is not None:
        shardings = jax.tree.map(lambda leaf: leaf.sharding, state.ema)
        copied = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree), out_shardings=shardings)
        ema = copied(params)
    return dataclasses.replace(state, params=params, ema=ema, opt_state=moments)


def model_weights(config: ExperimentConfig, params: Params, base: Params | None) -> Params:
    """The weights that the model computes with: the parameters, or `base` with them as adapters."""
    if base is None:
        return params
    from flaxformer_mt.low_rank import merged  # most runs have no adapters

    return merged(base, params, config.training.adapters.scale)


TrainStep = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def batch_loss(
    model: Transformer,
    config: ExperimentConfig,
    params: Params,
    batch: Batch,
    dropout_key: jax.Array | None,
    scattered_tables: frozenset[str] = frozenset(),
) -> LossSums:
    """Loss sums of one batch; without a key there is no dropout.

    The gradients of the `scattered_tables` are summed into each device's part alone.
    """
    parts = rows_split()  # devices among which the rows are split
    variables: dict[str, Any] = {"params": params}
    table: Any = nn.with_logical_constraint(softmax_table(params, config.model), ("vocab", None))
    if parts > 1:

        def copies_of(name: str, vocabulary_table: jax.Array) -> jax.Array:
            if name in scattered_tables:
                return copies_with_scattered_sum(vocabulary_table, parts)
            return copies(vocabulary_table, parts)

        variables["copies"] = table_copies(params, config.model, copies_of)
        table = softmax_table(variables["copies"], config.model)
    hidden: Any = model.apply(
        variables,
        batch.src,
        batch.tgt_in,
        src_segment_ids=batch.src_segment_ids,
        tgt_segment_ids=batch.tgt_segment_ids,
        src_positions=batch.src_positions,
        tgt_positions=batch.tgt_positions,
        dropout_key=dropout_key,
    )

    loss = functools.partial(
        smoothed_cross_entropy,
        bias=softmax_bias(params, config.model),
        smoothing=config.training.label_smoothing,
        chunk=config.training.loss_chunk,
        dtype=config.model.dtype,
        activation_dtype=config.model.kept_dtype,
        types=model.tgt_vocab_size,
    )
    labels = jnp.asarray(batch.tgt_out)
    weights = jnp.asarray(batch.tgt_segment_ids > 0, jnp.float32)
    if batch.tgt_weights is not None:
        weights *= batch.tgt_weights
    if parts == 1:
        return loss(hidden, table, labels, weights)

    def split(x: jax.Array) -> jax.Array:
        return x.reshape(parts, -1, *x.shape[1:])  # [rows, ...] -> [parts, rows / parts, ...]

    sums = jax.vmap(loss)(split(hidden), table, split(labels), split(weights))
    return jax.tree.map(jnp.sum, sums)


def step_key(seed: int, step: jax.Array) -> jax.Array:
    """A step's dropout key depends on nothing else: step n is the same after any restart."""
    return jax.random.fold_in(jax.random.key(seed), step)


@dataclasses.dataclass(frozen=True)
class UpdateLayout:
    """Shardings of the whole parameters, and of the part of them that each device updates."""

    whole: Any
    update: Any
    scattered_tables: frozenset[str] = frozenset()  # of which a device sums its own part alone

    @property
    def sums(self) -> Any:
        """Shardings into which gradients are summed over the devices.

        Whole first: if asked for parts at once, the partitioner would cut each gradient's product
        into a ring of small ones. A sum whose parts different devices use is scattered anyway.
        """
        if not self.scattered_tables:
            return self.whole
        parts = self.update["embedding"]
        tables = {name: parts[name] for name in self.scattered_tables}
        return {**self.whole, "embedding": {**self.whole["embedding"], **tables}}


def make_train_step(
    model: Transformer,
    config: ExperimentConfig,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    layout: UpdateLayout | None,
) -> TrainStep:
    """`(state, batch) -> (state, metrics)`, to be jitted with the state donated.

    The gradient is that of the smoothed loss, times the pair's weight if it has one, summed over
    the batch's target tokens and divided by their number, also with micro-batches. An update whose
    loss or gradient isn't finite changes no parameters, moments or average, and is counted.
    `schedule` is the optimizer's, for the metrics.

    With a `layout`, gradients are summed into the parts that it names and each device updates its
    own; the jitted step's shardings say how the parameters are laid out then.
    """
    return Update(model, config, optimizer, schedule, layout).train_step


@dataclasses.dataclass(frozen=True, eq=False)
class Update:
    """The fixed inputs of an update, all but state and batch; its methods are the update's phases.

    `make_train_step` explains the fields.
    """

    model: Transformer
    config: ExperimentConfig
    optimizer: optax.GradientTransformation
    schedule: optax.Schedule
    layout: UpdateLayout | None

    def train_step(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """See `make_train_step`."""
        tokens = jnp.maximum(batch.tgt_tokens, 1).astype(jnp.float32)
        dropout_key = step_key(self.config.training.seed, state.step)
        exchanged_params = self.exchanged(state.params)
        (loss, nll), gradient = self.gradient(
            exchanged_params, state.base, batch, tokens, dropout_key
        )

        own_gradient, own_params = self.own_parts(gradient, state.params)
        own_gradient = optax.tree.cast(own_gradient, jnp.float32)
        norm = optax.tree.norm(own_gradient)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        params, opt_state, ema = self.applied(state, own_params, own_gradient, finite)

        if batch.tgt_weights is not None:
            # What people look at are means by weight, the same whatever the weights' size.
            loss, nll = (sums * tokens / batch.tgt_weight for sums in (loss, nll))
        updates_before = state.step - state.skipped
        bad = jnp.where(finite, 0, 1).astype(jnp.int32)
        new_state = TrainState(
            step=state.step + 1,
            params=params,
            opt_state=opt_state,
            ema=ema,
            bad_run=(state.bad_run + bad) * bad,
            skipped=state.skipped + bad,
            base=state.base,
        )
        metrics = {
            "loss": loss,
            "nll": nll,
            "gradient_norm": norm,
            "learning_rate": self.schedule(updates_before),
            "src_tokens": batch.src_tokens,
            "tgt_tokens": batch.tgt_tokens,
            "tgt_weight": batch.tgt_weight,
            "sentences": batch.sentences,
            "bad_run": new_state.bad_run,
            "skipped": new_state.skipped,
        }
        return new_state, metrics

    def exchanged(self, params: Params) -> Params:
        """The whole parameters, gathered as devices exchange them: matrices in
        `training.exchange_dtype`, with gradients of that type.

        Vectors (biases, normalisation) are a thousandth of the traffic and stay in float32.
        """
        dtype = self.config.training.exchange_dtype

        def cast(path: tuple[Any, ...], leaf: jax.Array) -> jax.Array:
            return leaf.astype(dtype) if leaf.ndim > 1 + is_stacked(path) else leaf

        if dtype != "float32":
            params = jax.tree_util.tree_map_with_path(cast, params)
        if self.layout is not None:
            # Each device casts its part before the parts are gathered.
            params = jax.lax.with_sharding_constraint(params, self.layout.update)
            params = jax.lax.with_sharding_constraint(params, self.layout.whole)
        return params

    def objective(
        self,
        params: Params,
        base: Params | None,
        batch: Batch,
        tokens: jax.Array,
        dropout_key: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """(objective, nll) of some rows, in nats divided by `tokens`."""
        params = without_frozen_gradients(params, self.config.training.freeze)
        params = model_weights(self.config, params, base)
        scattered = self.layout.scattered_tables if self.layout else frozenset()
        sums = batch_loss(self.model, self.config, params, batch, dropout_key, scattered)
        return sums.objective / tokens, sums.nll / tokens

    def gradient(
        self,
        params: Params,
        base: Params | None,
        batch: Batch,
        tokens: jax.Array,
        dropout_key: jax.Array,
    ) -> ObjectiveAndGradient:
        """((objective, nll), gradient) of the whole batch, micro-batch by micro-batch."""
        objective_and_gradient = jax.value_and_grad(self.objective, has_aux=True)
        count = self.config.training.optimizer.accumulation
        if count == 1:
            return objective_and_gradient(params, base, batch, tokens, dropout_key)

        def add(
            totals: ObjectiveAndGradient, numbered_batch: tuple[Batch, jax.Array]
        ) -> tuple[ObjectiveAndGradient, None]:
            micro_batch, number = numbered_batch
            key = jax.random.fold_in(dropout_key, number)
            terms = objective_and_gradient(params, base, micro_batch, tokens, key)
            return jax.tree.map(jnp.add, totals, terms), None

        batches = micro_batches(batch, count)
        zero = jnp.zeros((), jnp.float32)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), params)
        totals, _ = jax.lax.scan(add, ((zero, zero), zeros), (batches, jnp.arange(count)))
        return totals

    def own_parts(self, gradient: Params, params: Params) -> tuple[Params, Params]:
        """Both trees as each device updates them: its part, if there is a layout."""
        if self.layout is None:
            return gradient, params
        gradient = jax.lax.with_sharding_constraint(gradient, self.layout.sums)
        gradient = jax.lax.with_sharding_constraint(gradient, self.layout.update)
        return gradient, jax.lax.with_sharding_constraint(params, self.layout.update)

    def applied(
        self, state: TrainState, own_params: Params, own_gradient: Params, finite: jax.Array
    ) -> tuple[Params, Any, Params | None]:
        """Parameters, optimizer state and average after the update; as before unless `finite`."""

        def if_finite(new: Any, old: Any) -> Any:
            # A select, not a branch: it fuses into the optimizer's own pass over the parameters.
            return jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)

        updates, new_opt_state = self.optimizer.update(own_gradient, state.opt_state, own_params)
        new_params = optax.apply_updates(own_params, updates)
        params, opt_state = if_finite((new_params, new_opt_state), (own_params, state.opt_state))
        if state.ema is None:
            return params, opt_state, None

        settings = self.config.training.optimizer
        moved = optax.incremental_update(params, state.ema, 1 - settings.ema_decay)
        return params, opt_state, if_finite(moved, state.ema)


def micro_batches(batch: Batch, count: int) -> Batch:
    """The batch with the axis of micro-batches first: [rows, length] -> [count, rows, length].

    Row i goes to micro-batch i % count: each device has rows in every micro-batch.
    """
    return jax.tree.map(lambda x: jnp.moveaxis(x.reshape(-1, count, *x.shape[1:]), 1, 0), batch)
