"""One update: its metrics, its randomness, accumulation, and updates that are not made."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flaxformer_mt.data.batch import Batch, assemble
from flaxformer_mt.data.pack import plan_packed
from flaxformer_mt.data.plan import Shape, plan_bits
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.step import TrainState, batch_loss, step_key
from tests.training.examples import (
    MAX_LENGTH,
    assert_same,
    build_tiny,
    on_host,
    poisoned,
    program,
    random_pairs,
    tiny,
    uneven_batch,
)


def run(batches: list[Batch], on: Program | None = None) -> tuple[TrainState, list[Any]]:
    """The state and the metrics after a step on each batch, on the host."""
    on = on or program()
    state, metrics = on.init(), []
    for batch in batches:
        state, step_metrics = on.train_step(state, batch)
        metrics.append(jax.device_get(step_metrics))
    return on_host(state), metrics


@functools.cache
def without_dropout(accumulation: int = 1) -> Program:
    settings = {"accumulation": accumulation, "ema_decay": 0.0}
    changes = {f"training.optimizer.{name}": value for name, value in settings.items()}
    return build_tiny({"model.dropout": 0.0, **changes})


def assert_close(ours: Any, theirs: Any, **tolerance: float) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def batches(count: int) -> list[Batch]:
    return [uneven_batch(seed=seed) for seed in range(count)]


GOLDEN = {"loss": 2.3265104, "nll": 2.8718319, "gradient_norm": 1.7889113}


def test_metrics_of_the_first_step_are_golden():
    _, (metrics,) = run([uneven_batch()])
    got = {name: float(metrics[name]) for name in GOLDEN}
    assert got == pytest.approx(GOLDEN, rel=1e-4), (
        f"the first step of a tiny model now gives {got}. Initialisation, model, dropout or loss "
        "have changed: runs are not comparable with those of before. If that is meant, say so in "
        "CHANGELOG.md and put these numbers into GOLDEN"
    )


def test_the_loss_of_packed_rows_is_the_sum_of_their_pairs_losses():
    pairs, params = random_pairs(24), program().init().params
    plan = plan_packed(*pairs.lengths, Shape(4, 24, 24), plan_bits(0, 0, 0))
    loss = jax.jit(functools.partial(batch_loss, program().model, tiny(), dropout_key=None))

    def sums(indices: np.ndarray, shape: Shape, *counts: np.ndarray) -> np.ndarray:
        batch_sums = loss(params, assemble(pairs, indices, shape, *counts))
        return np.array([batch_sums.objective, batch_sums.nll, batch_sums.weight], np.float64)

    rows = [plan[index] for index in range(len(plan))]
    assert max(packed.counts.max() for _, packed in rows) > 2
    together = sum(sums(packed.pairs, shape, packed.counts) for shape, packed in rows)
    single = sums(np.arange(len(pairs)), Shape(24, MAX_LENGTH, MAX_LENGTH))
    assert together == pytest.approx(single, rel=1e-5)


def weighted(batch: Batch, weights: np.ndarray) -> Batch:
    """The batch with a weight for each row's only pair."""
    by_token = np.where(batch.tgt_segment_ids > 0, weights[:, None], 0).astype(np.float32)
    return dataclasses.replace(batch, tgt_weights=by_token)


def test_a_pairs_weight_multiplies_its_loss_and_its_gradient():
    pairs, params = random_pairs(4), without_dropout().init().params
    shape, weights = Shape(4, MAX_LENGTH, MAX_LENGTH), np.array([0, 0.5, 1, 3])

    @jax.jit
    def objective(params: Any, batch: Batch) -> Any:
        return batch_loss(without_dropout().model, tiny(), params, batch, None).objective

    def gradient(indices: list[int], weights: np.ndarray | None = None) -> Any:
        batch = assemble(pairs, np.array(indices), shape)
        batch = batch if weights is None else weighted(batch, weights)
        return jax.device_get(jax.value_and_grad(objective)(params, batch))

    together = gradient([0, 1, 2, 3], weights)
    single = [gradient([number]) for number in range(4)]
    expected = jax.tree.map(lambda *each: sum(w * x for w, x in zip(weights, each)), *single)  # noqa: B905
    assert_close(together, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_step_divides_weighted_losses_by_the_number_of_tokens(accumulation):
    """So weights of 2 are a gradient twice as long, and those of 1 change nothing. What is reported
    are means by weight."""
    on, batch = without_dropout(accumulation), uneven_batch()
    rows = np.ones(len(batch.tgt_out))
    runs = [run([one], on) for one in (batch, weighted(batch, rows), weighted(batch, 2 * rows))]
    (before, (plain,)), (after, (ones,)), (_, (twos,)) = runs
    assert_close(before.params, after.params, rtol=1e-5, atol=1e-7)
    for name in ("loss", "nll"):
        means = [float(metrics[name]) for metrics in (plain, ones, twos)]
        assert means == pytest.approx([means[0]] * 3, rel=1e-5)
    norms = [float(metrics["gradient_norm"]) for metrics in (plain, ones, twos)]
    assert norms == pytest.approx([norms[0], norms[0], 2 * norms[0]], rel=1e-5)
    weights = [float(metrics["tgt_weight"]) for metrics in (plain, ones, twos)]
    assert weights == pytest.approx([1 * weights[0], weights[0], 2 * weights[0]])
    assert weights[0] == float(batch.tgt_tokens)


def test_means_by_weight_are_of_the_heavier_pairs():
    on, batch = without_dropout(), uneven_batch()
    rows = np.zeros(len(batch.tgt_out))
    rows[0] = 0.25
    _, (alone,) = run([weighted(batch, rows)], on)
    sums = batch_loss(on.model, tiny(), on.init().params, weighted(batch, rows), None)
    assert float(alone["nll"]) == pytest.approx(float(sums.nll / sums.weight), rel=1e-5)


def test_dropout_differs_from_step_to_step_and_with_the_seed():
    keys = [
        tuple(jax.random.key_data(step_key(seed, jnp.int32(step))).tolist())
        for seed in (1, 2)
        for step in (0, 1, 2)
    ]
    assert len(set(keys)) == 6

    def loss_at(step: int) -> float:
        state = dataclasses.replace(program().init(), step=jnp.int32(step))
        return float(program().train_step(state, uneven_batch())[1]["loss"])

    assert loss_at(0) == loss_at(0)
    assert loss_at(0) != loss_at(1)


def test_loss_is_divided_by_the_global_number_of_target_tokens():
    """Of all micro-batches, each of which draws dropout of its own."""
    on, batch = build_tiny({"training.optimizer.accumulation": 2}), uneven_batch()
    state = on.init()
    key = step_key(tiny().training.seed, state.step)
    loss = jax.jit(functools.partial(batch_loss, on.model, tiny()))
    expected = np.zeros(2)
    for index in range(2):
        part = jax.tree.map(lambda rows, index=index: rows[index::2], batch)
        sums = loss(state.params, part, jax.random.fold_in(key, index))
        expected += [sums.objective, sums.nll]
    _, metrics = on.train_step(state, batch)
    reported = [float(metrics["loss"]), float(metrics["nll"])]
    assert reported == pytest.approx(expected / batch.tgt_tokens, rel=1e-5)


def test_accumulation_equals_one_batch():
    """Micro-batches have unequal numbers of tokens, so a mean of means would be seen."""
    in_batches = batches(2)
    assert len({(in_batches[0].tgt_segment_ids[part::4] > 0).sum() for part in range(4)}) > 1
    state, metrics = run(in_batches, without_dropout(accumulation=4))
    at_once, wanted_metrics = run(in_batches, without_dropout())
    assert_close(metrics, wanted_metrics, rtol=1e-5)
    assert_close(state.params, at_once.params, atol=1e-6)


def test_gradients_in_bfloat16_update_parameters_in_float32():
    """Alone, a device exchanges nothing: this is what the type rounds."""
    reduced = {"model.dtype": "bfloat16", "model.dropout": 0.0}
    (wide, (wide_metrics,)), (narrow, (narrow_metrics,)) = (
        run([uneven_batch()], build_tiny(reduced | changes))
        for changes in ({}, {"training.exchange_dtype": "bfloat16"})
    )
    for name in ("loss", "nll", "gradient_norm"):
        assert narrow_metrics[name] == pytest.approx(wide_metrics[name], rel=0.01)

    # Adam's first moments: a tenth of each gradient.
    moments = (jax.tree.leaves(optax.tree.get(state.opt_state, "mu")) for state in (narrow, wide))
    for ours, theirs in zip(*moments, strict=True):
        assert ours.dtype == np.float32
        assert_close(ours, theirs, rtol=0, atol=0.02 * np.abs(theirs).max())
    matrix = narrow.params["embedding"]["shared"]
    assert np.any(matrix != matrix.astype(jnp.bfloat16).astype(np.float32))


def test_an_update_that_is_not_finite_is_not_made():
    good, bad = uneven_batch(), poisoned(uneven_batch(seed=1))
    before, _ = run([good])
    after, metrics = run([good, bad, bad])
    assert not np.isfinite(metrics[1]["loss"])
    assert_same(after.params, before.params)
    assert_same(after.opt_state, before.opt_state)
    assert_same(after.ema, before.ema)
    assert [int(step_metrics["bad_run"]) for step_metrics in metrics] == [0, 1, 2]
    assert [int(step_metrics["skipped"]) for step_metrics in metrics] == [0, 1, 2]
    # The clock of randomness goes on: the batches were seen.
    assert after.step == 3

    # Hidden states of 1e25 have a finite loss; the squares of its gradient are beyond float32.
    state = program().init()
    state.params["decoder"]["layers_0"]["feed_forward_residual"]["norm"]["scale"] *= 1e25
    before = on_host(state.params)
    after, metrics = program().train_step(state, uneven_batch())
    assert np.isfinite(metrics["loss"]) and not np.isfinite(metrics["gradient_norm"])
    assert int(metrics["skipped"]) == 1
    assert_same(on_host(after.params), before)


def test_training_goes_on_behind_a_skipped_update():
    good, bad = batches(2), poisoned(uneven_batch(seed=5))
    state, metrics = run([good[0], bad, good[1], good[0]])
    assert [int(step_metrics["bad_run"]) for step_metrics in metrics] == [0, 1, 0, 0]
    assert state.skipped == 1

    # A skipped update leaves neither schedule nor bias correction a step ahead.
    rates = [float(step_metrics["learning_rate"]) for step_metrics in metrics]
    assert rates[2] == rates[1]
    assert rates[3] == pytest.approx(rates[1] * 3 / 2)
    undisturbed, _ = run([good[0]])
    moved = jax.tree.map(
        lambda a, b: np.isfinite(a).all() and (a != b).any(), state.params, undisturbed.params
    )
    assert jax.tree.all(moved)


def test_a_batch_of_padding_alone_is_harmless():
    empty = jax.tree.map(np.zeros_like, uneven_batch())
    state, (metrics,) = run([empty])
    assert (metrics["tgt_tokens"], metrics["skipped"], metrics["loss"]) == (0, 0, 0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))


def test_moving_average_is_its_formula():
    state = program().init()
    expected = on_host(state.params)
    assert_same(on_host(state.ema), expected)
    for batch in batches(3):
        state, _ = program().train_step(state, batch)
        expected = jax.tree.map(
            lambda average, new: 0.9 * average + 0.1 * np.asarray(new, np.float64),
            expected,
            on_host(state.params),
        )
    assert_close(on_host(state.ema), expected, rtol=1e-5, atol=1e-7)
