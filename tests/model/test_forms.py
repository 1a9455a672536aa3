"""Scanned, rematerialised and unrolled layers are one function."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.model.parameters import initial_params, unstack_layers
from tests.model.examples import apply, build, jit, packed_rows, stack_layers, tiny_config

TWO_LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "norm": "pre"}
DROPOUT = {"dropout": 0.3, "attention_dropout": 0.2, "ffn_dropout": 0.1}


def value_and_gradients(model, params, dropout_seed=None):
    rows = packed_rows()
    weights = np.random.default_rng(0).standard_normal((*rows.tgt_in.shape, model.config.d_model))
    weights = np.float32(weights * (rows.tgt_segment_ids != 0)[..., None])

    def loss(params):
        return jnp.sum(apply(model, params, rows, dropout_seed=dropout_seed) * weights)

    return jit(jax.value_and_grad(loss))(params)


@functools.cache
def plain_form(dropout_seed):
    return value_and_gradients(*build(tiny_config(**TWO_LAYERS, **DROPOUT)), dropout_seed)


def assert_trees_close(a, b, tolerance):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
        name = jax.tree_util.keystr(path)
        np.testing.assert_allclose(x, y, atol=tolerance, rtol=tolerance, err_msg=name)


@pytest.mark.parametrize(
    ("scan_layers", "remat", "dropout_seed"),
    [
        (True, True, 3),
        pytest.param(True, False, None, marks=pytest.mark.extended),
        pytest.param(False, True, 3, marks=pytest.mark.extended),
    ],
)
def test_values_and_gradients_are_those_of_the_plain_form(scan_layers, remat, dropout_seed):
    options = {**TWO_LAYERS, **DROPOUT}
    _, params = build(tiny_config(**options))
    value, gradients = plain_form(dropout_seed)
    model, _ = build(tiny_config(**options, scan_layers=scan_layers, remat=remat))
    other_params = stack_layers(params) if scan_layers else params
    other_value, other_gradients = value_and_gradients(model, other_params, dropout_seed)
    if scan_layers:
        other_gradients = unstack_layers(other_gradients)
    np.testing.assert_allclose(value, other_value, rtol=1e-5)
    assert_trees_close(gradients, other_gradients, 2e-5)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_each_layer_draws_its_own_dropout(scan_layers):
    """With every kernel 0 and the last bias 1, two layers add their two masks times 2 to zeros."""
    model, params = build(
        tiny_config(
            encoder_layers=2,
            decoder_layers=1,
            norm="pre",
            positions="learned",
            dropout=0.5,
            scan_layers=scan_layers,
        )
    )

    def simple(path, leaf):
        return np.full_like(leaf, 1.0 if path[-1].key in ("b_out", "scale") else 0.0)

    rows = packed_rows()
    encoded = model.apply(
        {"params": jax.tree_util.tree_map_with_path(simple, params)},
        rows.src,
        src_segment_ids=rows.src_segment_ids,
        src_positions=rows.src_positions,
        dropout_key=jax.random.key(0),
        method="encode",
    )
    sums = {len(np.unique(np.round(position, 3))) for position in encoded.reshape(-1, 12)}
    assert max(sums) == 3, "only 0 and 4 stand there when both layers drop the same elements"


def test_scanned_and_unrolled_models_begin_with_the_same_numbers():
    """Each layer with its own; stacking and unstacking are inverse."""
    forms = {"encoder_layers": 3, "decoder_layers": 2, "norm": "pre"}
    unrolled, scanned = (
        nn.meta.unbox(jit(functools.partial(initial_params, build(config)[0]))(jax.random.key(7)))
        for config in (tiny_config(**forms), tiny_config(**forms, scan_layers=True))
    )
    assert_trees_close(stack_layers(unrolled), scanned, 0)
    assert_trees_close(unstack_layers(scanned), unrolled, 0)
    kernels = scanned["encoder"]["layers"]["self_attention"]["query"]
    assert len(np.unique(kernels)) == kernels.size
    with pytest.raises(ValueError, match="no 'layers'"):
        unstack_layers(unrolled)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_every_parameter_names_its_axes(scan_layers):
    config = tiny_config(
        positions="learned",
        norm="pre",
        attention_bias=True,
        logits_bias=True,
        scan_layers=scan_layers,
    )
    model, _ = build(config)
    boxed = jax.eval_shape(functools.partial(initial_params, model), jax.random.key(0))
    leaves = jax.tree.leaves(boxed, is_leaf=lambda leaf: isinstance(leaf, nn.LogicallyPartitioned))
    for leaf in leaves:
        assert isinstance(leaf, nn.LogicallyPartitioned)
        assert len(leaf.names) == leaf.value.ndim
        assert set(leaf.names) <= {"vocab", "embed", "heads", "kv", "mlp", "layers", None}
