"""Optimizers beside the paper's Adam against the same in float64 NumPy, and on the model."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flaxformer_mt.config import ConfigError, OptimizerConfig
from flaxformer_mt.config.consistency import unused_settings
from flaxformer_mt.training.optimizer import make_optimizer
from tests.training.examples import assert_same, build_tiny, on_host, tiny, uneven_batch

STEPS = 4
# By path: a shape, and the parameter as (matrices, inputs, outputs), if it is a layer's kernel.
SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, int, int] | None]] = {
    "encoder/layers_0/query": ((6, 2, 4), (1, 6, 8)),
    "encoder/layers_0/query_bias": ((2, 4), None),
    "encoder/layers_0/out": ((2, 4, 6), (1, 8, 6)),
    "decoder/layers/w_in": ((3, 40, 33), (3, 40, 33)),
    "decoder/layers/b_in": ((3, 33), None),
    "embedding/shared": ((35, 34), None),
}
MATRICES = {name for name in SHAPES if "b" not in name.rpartition("/")[2]} | {"embedding/shared"}

Arrays = dict[str, np.ndarray]
# A step's direction from a parameter's own history: (name, gradients so far, parameter) -> array.
Rule = Callable[[str, list[np.ndarray], np.ndarray], np.ndarray]


def rate(count: Any) -> Any:
    return 0.1 / (count + 1)


def draw(seed: int, size: float = 1.0) -> Arrays:
    random = np.random.default_rng(seed)
    return {name: size * random.standard_normal(shape) for name, (shape, _) in SHAPES.items()}


GRADIENTS = [draw(seed, 10.0**-seed) for seed in range(1, STEPS + 1)]


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, leaf in flat.items():
        *groups, last = name.split("/")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = jnp.asarray(leaf, jnp.float32)
    return tree


def ours(**settings: Any) -> Arrays:
    optimizer = make_optimizer(OptimizerConfig(**settings), rate)

    @jax.jit
    def update(params: Any, state: Any, gradient: Any) -> Any:
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    params = nested(draw(0))
    state = optimizer.init(params)
    for gradient in GRADIENTS:
        params, state = update(params, state, nested(gradient))
    leaves = jax.tree.leaves_with_path(params)
    separated = {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}
    return {name: np.asarray(leaf) for name, leaf in separated.items()}


def by_hand(rule: Rule, weight_decay: float = 0.0) -> Arrays:
    params = draw(0)
    for step in range(STEPS):
        for name, param in params.items():
            history = [gradient[name] for gradient in GRADIENTS[: step + 1]]
            direction = rule(name, history, param)
            if name in MATRICES:
                direction = direction + weight_decay * param
            params[name] = param - rate(step) * direction
    return params


def assert_close(got: Arrays, expected: Arrays, tolerance: float = 1e-5) -> None:
    assert got.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(
            got[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name
        )


def average(history: list[np.ndarray], decay: float) -> np.ndarray:
    """The exponential moving average from 0."""
    weights = [(1 - decay) * decay**age for age in range(len(history))]
    return sum(w * g for w, g in zip(weights, reversed(history), strict=True))


def adam(_: str, history: list[np.ndarray], __: np.ndarray) -> np.ndarray:
    step = len(history)
    first = average(history, 0.9) / (1 - 0.9**step)
    second = average([g**2 for g in history], 0.98) / (1 - 0.98**step)
    return first / (np.sqrt(second) + 1e-9)


def test_adamw_shrinks_matrices_only():
    assert_close(ours(kind="adamw", weight_decay=0.1), by_hand(adam, 0.1))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_lion_moves_by_the_sign_of_its_moment(weight_decay):
    """Algorithm 2 of Chen et al. (arXiv 2302.06675)."""

    def lion(_: str, history: list[np.ndarray], __: np.ndarray) -> np.ndarray:
        *earlier, gradient = history
        moment = average(earlier, 0.98) if earlier else 0
        return np.sign(0.9 * moment + 0.1 * gradient)

    assert_close(ours(kind="lion", weight_decay=weight_decay), by_hand(lion, weight_decay))


def root_mean_square(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x**2)))


@pytest.mark.parametrize(
    "settings",
    [{}, {"decay_exponent": 0.5}, {"parameter_scale": False, "weight_decay": 0.1}],
    ids=["paper", "exponent", "unscaled"],
)
def test_adafactor_keeps_rows_and_columns_of_wide_matrices(settings):
    """Algorithms 4 and 6 of Shazeer and Stern; w_in and the embeddings are wide enough."""
    exponent = settings.get("decay_exponent", 0.8)

    def adafactor(name: str, history: list[np.ndarray], param: np.ndarray) -> np.ndarray:
        second = np.zeros_like(param)
        for step, gradient in enumerate(history, start=1):
            decay = 1 - step**-exponent
            second = decay * second + (1 - decay) * (gradient**2 + 1e-30)
        if name in ("decoder/layers/w_in", "embedding/shared"):
            rows = second.mean(axis=-1, keepdims=True)
            columns = second.mean(axis=-2, keepdims=True)
            second = rows * columns / rows.mean(axis=-2, keepdims=True)
        update = history[-1] / np.sqrt(second)
        update /= max(1.0, root_mean_square(update))
        scaled = settings.get("parameter_scale", True)
        return update * (max(1e-3, root_mean_square(param)) if scaled else 1.0)

    got = ours(kind="adafactor", **settings)
    assert_close(got, by_hand(adafactor, settings.get("weight_decay", 0.0)))


@pytest.mark.parametrize("momentum", [0.95, 0.8])
def test_muon_makes_each_layer_matrix_orthogonal(momentum):
    """Jordan's iteration on a Nesterov momentum, a matrix per layer; Adam for the rest."""

    def orthogonal(matrix: np.ndarray) -> np.ndarray:
        x = matrix if len(matrix) <= len(matrix.T) else matrix.T
        x = x / (np.linalg.norm(x) + 1e-8)
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x + (-4.775 * square + 2.0315 * square @ square) @ x
        return x if len(matrix) <= len(matrix.T) else x.T

    def muon(name: str, history: list[np.ndarray], param: np.ndarray) -> np.ndarray:
        form = SHAPES[name][1]
        if form is None:
            return adam(name, history, param)
        step = len(history)
        ahead = average(history, momentum) / (1 - momentum ** (step + 1))
        moment = momentum * ahead + (1 - momentum) * history[-1] / (1 - momentum**step)
        matrices = moment.reshape(form)
        rows = [orthogonal(matrix) for matrix in matrices]
        return 0.2 * math.sqrt(max(form[1:])) * np.stack(rows).reshape(param.shape)

    got = ours(kind="muon", momentum=momentum, weight_decay=0.1)
    assert_close(got, by_hand(muon, 0.1), 1e-4)


RULES: dict[str, dict[str, Any]] = {
    "adamw": {"training.optimizer.weight_decay": 0.01},
    "adafactor": {},
    "lion": {"training.optimizer.clip_norm": 1.0},
    "muon": {},
}


@pytest.mark.parametrize("kind", RULES)
def test_each_learns_a_batch_and_leaves_the_frozen_alone(kind):
    changes = RULES[kind] | {"training.optimizer.kind": kind, "training.freeze": ("embedding/*",)}
    built, batch = build_tiny(changes), uneven_batch()
    state = built.init()
    before = on_host(state.params["embedding"])
    losses = []
    for _ in range(20):
        state, metrics = built.train_step(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] - 0.5
    assert_same(on_host(state.params["embedding"]), before)


def test_adafactor_keeps_less_than_a_moment():
    wide = {"model.d_model": 64, "model.d_ff": 64, "model.d_k": 32, "model.d_v": 32}

    def size(kind: str) -> int:
        state = build_tiny(wide | {"training.optimizer.kind": kind}).abstract.opt_state
        return sum(leaf.size for leaf in jax.tree.leaves(state))

    parameters = size("lion")
    assert size("adam") == pytest.approx(2 * parameters, rel=0.01)
    assert size("adafactor") < 0.25 * parameters


def test_settings_of_another_kind_are_named():
    with pytest.raises(ConfigError, match="weight_decay' must be set when '.*kind' is 'adamw'"):
        tiny({"training.optimizer.kind": "adamw"})
    config = tiny({"training.optimizer.kind": "lion", "training.optimizer.momentum": 0.9})
    assert (
        "'training.optimizer.momentum' = 0.9 has no effect with 'training.optimizer.kind' = "
        "'lion': leave it out, or set the kind to muon"
    ) in list(unused_settings(config))
