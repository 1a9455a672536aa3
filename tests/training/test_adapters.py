"""Low-rank adapters: what they add, what they leave alone, and what is kept of them."""

import shutil
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from flaxformer_mt.config import ConfigError
from flaxformer_mt.config.consistency import unused_settings
from flaxformer_mt.low_rank import merged
from flaxformer_mt.model.parameters import AdapterError
from flaxformer_mt.rundir import CheckpointError
from flaxformer_mt.rundir.checkpoint_format import read_meta, read_weights
from flaxformer_mt.rundir.layout import RunDirectory
from flaxformer_mt.rundir.weights import load_params
from flaxformer_mt.training.step import TrainState, with_params
from tests.training.examples import (
    assert_same,
    build_tiny,
    on_host,
    program,
    tiny,
    uneven_batch,
)
from tests.training.runs import Run

ADAPTERS = {"training.adapters.rank": 2, "training.adapters.scale": 3.0}
VALUES = {**ADAPTERS, "training.adapters.matrices": ("*/value", "decoder/*/w_in")}


def of_other_weights(weights: Any) -> Callable[[TrainState], TrainState]:
    return lambda state: with_params(state, weights)


def some_weights() -> Any:
    """What another run has trained: unlike what any run draws for itself."""
    return jax.tree.map(lambda leaf: leaf * 1.25 + 0.01, on_host(program().init().params))


def test_an_adapter_adds_the_product_of_its_matrices():
    random = np.random.default_rng(0)
    base = {
        "stack": {
            "query": random.normal(size=(6, 2, 3)),
            "w": random.normal(size=(2, 4, 5)),  # of two layers
            "bias": random.normal(size=3),
        },
        "table": random.normal(size=(7, 4)),
    }
    adapters = {
        "stack": {
            "query": {"a": random.normal(size=(6, 2)), "b": random.normal(size=(2, 6))},
            "w": {"a": random.normal(size=(2, 4, 2)), "b": random.normal(size=(2, 2, 5))},
        }
    }
    got = merged(base, adapters, 3.0)
    query, w = adapters["stack"]["query"], adapters["stack"]["w"]
    expected = base["stack"]["query"] + 3 * (query["a"] @ query["b"]).reshape(6, 2, 3)
    np.testing.assert_allclose(got["stack"]["query"], expected, rtol=1e-5)
    for layer in range(2):
        expected = base["stack"]["w"][layer] + 3 * w["a"][layer] @ w["b"][layer]
        np.testing.assert_allclose(got["stack"]["w"][layer], expected, rtol=1e-5)
    assert got["stack"]["bias"] is base["stack"]["bias"] and got["table"] is base["table"]


@pytest.mark.parametrize(("scan_layers", "ema_decay"), [(False, 0.0), (True, 0.9)])
def test_only_adapters_train_and_at_first_they_change_nothing(scan_layers, ema_decay):
    """What is validated has the adapters' moving average, if it is kept."""
    form = {"model.scan_layers": scan_layers, "training.optimizer.ema_decay": ema_decay}
    built = build_tiny({**ADAPTERS, **form})
    state, batch = built.init(), uneven_batch()
    start = on_host(state)
    assert_same(on_host(built.weights(state)), start.base)
    assert built.abstract_weights == build_tiny(form).abstract.params

    losses = []
    for _ in range(30):
        state, metrics = built.train_step(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] - 0.3
    assert_same(on_host(state.base), start.base)
    weights = on_host(built.weights(state))
    assert_same(weights["embedding"], start.base["embedding"])
    trained = on_host(state.params if state.ema is None else state.ema)
    for name, adapters in trained["decoder"].items():
        for key, adapter in adapters["cross_attention"].items():
            before, after = (
                tree["decoder"][name]["cross_attention"][key] for tree in (start.base, weights)
            )
            product = 3 * adapter["a"] @ adapter["b"]
            np.testing.assert_allclose(after - before, product.reshape(before.shape), atol=1e-6)
            assert np.linalg.matrix_rank(product, tol=1e-5).max() <= 2


def test_patterns_choose_the_matrices_and_only_adapters_have_moments():
    built = build_tiny(VALUES)
    paths = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape
        for path, leaf in jax.tree.leaves_with_path(built.abstract.params)
    }
    assert paths["encoder/layers_0/self_attention/value/a"] == (8, 2)
    assert paths["encoder/layers_0/self_attention/value/b"] == (2, 8)
    assert paths["decoder/layers_0/feed_forward/w_in/b"] == (2, 12)
    assert not any("query" in path or "encoder/layers_0/feed" in path for path in paths)
    moments = jax.tree.leaves(built.abstract.opt_state)
    assert sum(leaf.size for leaf in moments if leaf.ndim) == 2 * sum(
        np.prod(shape) for shape in paths.values()
    )
    with pytest.raises(AdapterError, match=r"no matrix of a layer matches '\*/bias'; there are "):
        build_tiny({**ADAPTERS, "training.adapters.matrices": ("*/query", "*/bias")})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"training.freeze": ("encoder/*",)}, "trains adapters only: set 'training.freeze' to"),
        ({"training.keep_moments": True}, "leave out 'training.keep_moments'"),
        ({"training.adapters.matrices": ()}, "needs 'training.adapters.matrices'"),
        ({"model.d_model": 8, "training.adapters.rank": 9}, "must be at most 'model.d_model' = 8"),
        ({"training.optimizer.kind": "muon"}, "'muon' has no matrix of a layer to train"),
        ({"training.optimizer.kind": "adafactor"}, "parameter_scale' = true hardly moves"),
    ],
)
def test_settings_that_contradict_adapters_are_refused(changes, problem):
    with pytest.raises(ConfigError, match=f"'training.adapters.rank' = [29].*{problem}"):
        tiny({**ADAPTERS, **changes})


def test_settings_of_adapters_without_a_rank_are_told():
    for name, value in (("scale", 4.0), ("matrices", ("*/query",))):
        told = list(unused_settings(tiny({f"training.adapters.{name}": value})))
        assert f"'training.adapters.{name}' needs 'training.adapters.rank' > 0" in told


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "adamw", "weight_decay": 0.01},
        {"kind": "adafactor", "parameter_scale": False},
        {"kind": "lion"},
        {"accumulation": 2},
    ],
)
def test_other_optimizers_train_them_too(changes):
    optimizer = {f"training.optimizer.{name}": value for name, value in changes.items()}
    built, batch = build_tiny({**ADAPTERS, **optimizer}), uneven_batch()
    state, losses = built.init(), []
    for _ in range(40):
        state, metrics = built.train_step(state, batch)
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0] - 0.3


def test_another_runs_base_is_refused(tmp_path):
    """As after a backup of the wrong run was put back."""
    settings = {**VALUES, "training.steps": 2, "training.save_every": 1}
    on = build_tiny(settings)
    runs = [Run(tmp_path / name, settings, on=on) for name in ("ours", "theirs")]
    for number, run in enumerate(runs):
        weights = jax.tree.map(lambda leaf, by=number: leaf + by, some_weights())
        run.start(initial_params=lambda weights=weights: weights, stop_after=1)
    ours, theirs = (run.folder / "checkpoints" / "base" for run in runs)
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    message = "base: holds other weights; all checkpoints beside it are adapters of the weights"
    with pytest.raises(CheckpointError, match=message):
        load_params(RunDirectory(runs[0].folder), 1)
    with pytest.raises(CheckpointError, match=message):
        runs[0].start()


def test_a_damaged_base_is_named_and_leftovers_of_a_killed_start_are_removed(tmp_path):
    settings = {**VALUES, "training.steps": 4, "training.save_every": 2}
    on = build_tiny(settings)
    run = Run(tmp_path, settings, on=on)
    weights = some_weights()
    leftover = tmp_path / "checkpoints" / "base.orbax-checkpoint-tmp-1" / "params"
    leftover.mkdir(parents=True)
    run.start(initial_params=lambda: weights, stop_after=2)
    assert not leftover.parent.exists()

    data = (tmp_path / "checkpoints" / "base" / "params").rglob("d/*")
    largest = max(data, key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-40])
    with pytest.raises(
        CheckpointError, match="base.* are adapters of the weights that were there: restore"
    ):
        run.start()


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_a_run_keeps_its_base_once_and_small_checkpoints(ema_decay, tmp_path):
    """Stopped and killed, it ends as in one go, and its weights are the base with its adapters."""
    settings = {
        **VALUES,
        "training.optimizer.ema_decay": ema_decay,
        "training.steps": 9,
        "training.save_every": 4,
        "training.validate_every": 6,
        "training.log_every": 3,
    }
    on = build_tiny(settings)
    runs = [Run(tmp_path / name, settings, on=on) for name in ("whole", "stopped")]
    weights = some_weights()
    for run, stops in zip(runs, ({}, {"stop_after": 5}), strict=True):
        run.start(initial_params=lambda: weights, **stops)
    assert runs[1].start().state == "finished"
    ends = [run.snapshot() for run in runs]
    assert_same(*((end.params, end.opt_state, end.ema) for end in ends))

    checkpoints = tmp_path / "whole" / "checkpoints"
    meta = read_meta(checkpoints / "9")
    assert {path.rpartition("/")[2] for path in meta["leaves"]["params"]} == {"a", "b"}
    assert_same(on_host(read_weights(checkpoints / "base")), weights)
    adapters = ends[0].params if ends[0].ema is None else ends[0].ema
    got = on_host(load_params(RunDirectory(tmp_path / "whole"), 9))
    expected = merged(weights, on_host(adapters), 3.0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, expected)
