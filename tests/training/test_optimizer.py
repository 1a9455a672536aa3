"""Adam against the same in float64 NumPy; the learning rate; parameters that do not train."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flaxformer_mt.config import ConfigError, OptimizerConfig, ScheduleConfig
from flaxformer_mt.model.parameters import initial_params
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.training.optimizer import (
    FreezeError,
    learning_rate,
    make_optimizer,
    path_name,
    trainable,
)
from flaxformer_mt.training.step import batch_loss
from tests.training.examples import VOCAB, assert_same, build_tiny, on_host, tiny, uneven_batch

Tree = dict[str, np.ndarray]


def rate(count: Any) -> Any:
    return 0.1 / (count + 1)


def start() -> Tree:
    random = np.random.default_rng(0)
    return {"a": random.standard_normal((3, 4)), "b": random.standard_normal(5)}


def gradients(steps: int = 5) -> list[Tree]:
    """Of sizes from 1e-6 to 10: epsilon and clipping both have their say."""
    random = np.random.default_rng(1)
    sizes = np.logspace(-6, 1, steps)
    return [
        {name: size * random.standard_normal(leaf.shape) for name, leaf in start().items()}
        for size in sizes
    ]


def adam(config: OptimizerConfig) -> Tree:
    """Algorithm 1 of Kingma and Ba (arXiv 1412.6980), clipping before it and decay beside it."""
    params = start()
    first = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    second = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    for step, gradient in enumerate(gradients(), start=1):
        norm = np.sqrt(sum((leaf**2).sum() for leaf in gradient.values()))
        scale = min(1.0, config.clip_norm / norm) if config.clip_norm else 1.0
        for name in params:
            g = gradient[name] * scale
            first[name] = config.beta1 * first[name] + (1 - config.beta1) * g
            second[name] = config.beta2 * second[name] + (1 - config.beta2) * g**2
            m = first[name] / (1 - config.beta1**step)
            v = second[name] / (1 - config.beta2**step)
            direction = m / (np.sqrt(v) + config.epsilon) + config.weight_decay * params[name]
            params[name] = params[name] - rate(step - 1) * direction
    return params


def ours(config: OptimizerConfig) -> Tree:
    optimizer = make_optimizer(config, rate)

    @jax.jit
    def update(params: Any, state: Any, gradient: Any) -> Any:
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    def as_float32(tree: Tree) -> Any:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), tree)

    params = as_float32(start())
    state = optimizer.init(params)
    for gradient in gradients():
        params, state = update(params, state, as_float32(gradient))
    return params


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"beta1": 0.5, "beta2": 0.7, "epsilon": 1e-3},
        {"clip_norm": 0.01},
        {"clip_norm": 1.0, "weight_decay": 0.01},
    ],
    ids=["paper", "other", "clipped", "both"],
)
def test_equals_adam_in_float64(changes):
    config = OptimizerConfig(**changes)
    got, expected = ours(config), adam(config)
    for name in expected:
        np.testing.assert_allclose(got[name], expected[name], rtol=1e-5, atol=1e-6)


def names(tree: Any) -> set[str]:
    return {path_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)}


PARAMS = {"encoder": {"layers_0": {"w": 1.0, "b": 1.0}}, "decoder": {"w": 1.0}, "embedding": 1.0}


@pytest.mark.parametrize(
    ("patterns", "frozen"),
    [
        (("embedding",), {"embedding"}),
        (("encoder/*",), {"encoder/layers_0/w", "encoder/layers_0/b"}),
        (("*/w",), {"encoder/layers_0/w", "decoder/w"}),
        (("embedding", "decoder/?"), {"embedding", "decoder/w"}),
    ],
)
def test_patterns_are_globs_over_paths(patterns, frozen):
    labels = trainable(PARAMS, patterns)
    named = jax.tree_util.tree_leaves_with_path(labels)
    assert {path_name(path) for path, label in named if label == "frozen"} == frozen
    assert names(labels) == names(PARAMS)


def test_patterns_match_parameters_with_and_without_their_axis_names():
    """The optimizer sees them with their logical axis names at the start, without later."""
    model = Transformer(tiny().model, VOCAB, VOCAB)
    boxed = jax.eval_shape(lambda: initial_params(model, jax.random.key(0)))
    pattern = ("encoder/layers_0/feed_forward/w_in",)
    assert nn.unbox(trainable(boxed, pattern)) == trainable(nn.unbox(boxed), pattern)


def test_patterns_match_some_parameters_and_leave_some():
    with pytest.raises(FreezeError) as error:
        trainable(PARAMS, ("encoder/*", "embeding"))
    assert str(error.value) == (
        "'training.freeze': no parameter matches 'embeding'; parameters: decoder/w, embedding, "
        "encoder/layers_0/b, encoder/layers_0/w"
    )
    with pytest.raises(FreezeError, match=r"'training.freeze' = \* leaves nothing to train"):
        trainable(PARAMS, ("*",))


def test_frozen_parameters_keep_every_bit_and_have_no_moments_nor_a_gradient():
    """The norm, as clipping has it, is of the decoder's gradient alone."""
    changes = {"model.dropout": 0.0, "training.optimizer.weight_decay": 0.1}
    changes["training.freeze"] = ("encoder/*", "embedding/shared")
    small, batch = build_tiny(changes), uneven_batch()
    state = small.init()
    before = on_host(state.params)
    assert not any("encoder" in name or "shared" in name for name in names(state.opt_state))
    assert any("decoder" in name for name in names(state.opt_state))

    @jax.jit
    def gradient(params: Any) -> Any:
        return jax.grad(lambda p: batch_loss(small.model, tiny(), p, batch, None).objective)(params)

    expected = optax.tree.norm(gradient(state.params)["decoder"]) / batch.tgt_tokens
    state, metrics = small.train_step(state, batch)
    assert float(metrics["gradient_norm"]) == pytest.approx(float(expected), rel=1e-4)
    state, metrics = small.train_step(state, batch)
    assert int(metrics["skipped"]) == 0
    after = on_host(state.params)
    assert_same((after["encoder"], after["embedding"]), (before["encoder"], before["embedding"]))
    moved = jax.tree.map(lambda a, b: (a != b).all(), after["decoder"], before["decoder"])
    assert jax.tree.all(moved)


STEPS = np.arange(1, 20_001)


def rates(d_model: int = 512, **settings: Any) -> np.ndarray:
    """The rates of steps counted from 1; a schedule counts the updates already made."""
    return np.asarray(learning_rate(ScheduleConfig(**settings), d_model)(jnp.asarray(STEPS - 1)))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"kind": "constant"}, {50: 0.5, 100: 1, 101: 1, 1000: 1, 2000: 1}),
        ({"kind": "linear"}, {50: 0.5, 100: 1, 550: 0.5, 1000: 0, 2000: 0}),
        ({"kind": "linear", "final": 0.1}, {100: 1, 550: 0.55, 1000: 0.1, 1001: 0.1}),
        ({"kind": "linear", "total_steps": 200}, {100: 1, 150: 0.5, 200: 0}),
        ({"kind": "cosine"}, {50: 0.5, 100: 1, 325: 0.5 + 2**-1.5, 550: 0.5, 1000: 0}),
        ({"kind": "cosine", "final": 0.1}, {100: 1, 550: 0.55, 1000: 0.1, 1500: 0.1}),
        ({"kind": "wsd"}, {50: 0.5, 100: 1, 900: 1, 950: 0.5, 1000: 0, 1001: 0}),
        ({"kind": "wsd", "decay_steps": 400, "final": 0.2}, {600: 1, 800: 0.6, 1000: 0.2}),
        ({"kind": "wsd", "total_steps": 500}, {450: 1, 475: 0.5, 500: 0}),
    ],
)
def test_other_curves_rise_to_their_peak_and_end_where_they_should(settings, expected):
    """Shares of the peak by step, counted from 1, of 1,000."""
    config = ScheduleConfig(peak=0.002, warmup_steps=100, **settings)
    curve = learning_rate(config, 512, 1000)
    for step, share in expected.items():
        rate_of_step = curve(jnp.asarray(step - 1))
        assert rate_of_step.dtype == np.float32
        assert float(rate_of_step) == pytest.approx(0.002 * share, abs=1e-8), step


def test_a_curve_has_room_within_the_training():
    changes = {"training.schedule.kind": "cosine", "training.steps": 100}
    assert tiny(changes).training.schedule.curve.kind == "cosine"
    warmup = "training.schedule.warmup_steps"
    with pytest.raises(ConfigError, match=rf"{warmup}' = 100 must be less than 'training.steps'"):
        tiny({**changes, warmup: 100})
    stable = {**changes, "training.schedule.kind": "wsd"}
    for settings, decay in (
        ({"training.schedule.decay_steps": 97}, r"4 and 'training.schedule.decay_steps' = 97"),
        ({warmup: 91}, "91 and the decay's 10 steps"),
    ):
        with pytest.raises(
            ConfigError, match=rf"{decay} together must be at most 'training.steps'"
        ):
            tiny({**stable, **settings})
    tiny({**stable, "training.schedule.decay_steps": 96})
    tiny({**stable, warmup: 90})
    with pytest.raises(TypeError, match="'wsd' needs the training's steps"):
        learning_rate(tiny(stable).training.schedule, 512)
    with pytest.raises(ConfigError, match="peak' must be set when '.*kind' is 'constant'"):
        tiny({"training.schedule.kind": "constant", "training.schedule.peak": 0.0})


def test_equals_the_formula_and_peak_gives_the_same_curve_whatever_d_model():
    steps = STEPS.astype(np.float64)
    for factor, d_model in ((1.0, 512), (2.5, 1024)):
        expected = factor * d_model**-0.5 * np.minimum(steps**-0.5, steps * 4000**-1.5)
        got = rates(d_model, factor=factor)
        np.testing.assert_allclose(got, expected, rtol=1e-6)
        assert got.dtype == np.float32
    # By hand, of the base model.
    assert rates()[[0, 3999]] == pytest.approx([1.746928e-7, 6.987712e-4], rel=1e-6)
    for warmup in (1, 10, 4000):
        got = rates(kind="peak", peak=0.005, warmup_steps=warmup)
        assert (got.argmax() + 1, got.max()) == (warmup, pytest.approx(0.005))
    papers = {"kind": "peak", "peak": 512**-0.5 * 4000**-0.5}
    np.testing.assert_allclose(rates(**papers), rates(), rtol=1e-6)
    np.testing.assert_array_equal(rates(**papers), rates(1024, **papers))
