"""Parameter counts by formula and by counting; initial values; position encodings."""

import dataclasses
import functools
import itertools
import math
from typing import get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.embedding import softmax_table
from flaxformer_mt.model.parameters import count, count_by_formula, initial_params, table
from flaxformer_mt.model.transformer import Transformer
from tests.model.examples import VOCAB, abstract_params, build, jit, tiny_config

BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16}


@functools.partial(jit, static_argnums=0)
def drawn(model, seed):
    return initial_params(model, jax.random.key(seed))


TIES = ("all", "target", "none")
FORMS = [
    {"norm": norm, "positions": positions, "tie": tie, "scan_layers": scan_layers}
    for norm, positions, tie, scan_layers in (
        *itertools.product(("post",), ("sinusoidal",), TIES, (False, True)),
        ("pre", "sinusoidal", "all", False),
        ("pre", "learned", "none", True),
    )
]
FORMS += [
    {"tie": tie, "vocab_multiple": 8, bias: True}
    for tie, bias in itertools.product(TIES, ("attention_bias", "logits_bias"))
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_formula_equals_count(form):
    config = tiny_config(**form, encoder_layers=3)
    tgt_vocab_size = VOCAB if config.tie == "all" else VOCAB + 4
    formula = count_by_formula(config, VOCAB, tgt_vocab_size)
    params = abstract_params(Transformer(config, VOCAB, tgt_vocab_size))
    assert count(params) == {part: number for part, number in formula.items() if number}
    if config.vocab_multiple > 1:
        assert {table.shape[0] % 8 for table in params["embedding"].values()} == {0}


@pytest.mark.parametrize(("changes", "millions"), [({}, 63.0), (BIG, 214.2)], ids=["base", "big"])
def test_the_papers_models(changes, millions):
    config = ModelConfig(**changes)
    formula = count_by_formula(config, 37_000, 37_000)
    assert round(sum(formula.values()) / 1e6, 1) == millions
    counted = count(abstract_params(Transformer(config, 37_000, 37_000)))
    assert sum(counted.values()) == sum(formula.values())


def test_the_table_shows_both_counts_and_the_total():
    config = tiny_config(positions="learned")
    _, params = build(config)
    _, *rows = (line.rsplit(maxsplit=2) for line in table(params, config, VOCAB, VOCAB).split("\n"))
    assert all(formula == counted != "0" for _, formula, counted in rows)
    assert "softmax" not in [part for part, *_ in rows], "a part that the model lacks has no row"
    total = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert rows[-1] == ["total", f"{total:,}", f"{total:,}"]
    smaller = {**params, "decoder": {"layers_0": params["decoder"]["layers_0"]}}
    formula, counted = table(smaller, config, VOCAB, VOCAB).split()[-2:]
    assert formula == f"{total:,}" != counted


def test_initial_values():
    config = tiny_config(d_model=64, d_ff=256, num_heads=4, d_k=16, d_v=24, tie="none")
    params = nn.meta.unbox(drawn(Transformer(config, 500, 400), 0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    layer = params["decoder"]["layers_0"]

    # Fans are those of the flattened matrix. Query, key and value: a gain of 1/sqrt(2), as parts
    # of one matrix have (see attention.py).
    for name, width, gain in (("query", 64, 1), ("key", 64, 1), ("value", 96, 1), ("out", 96, 2)):
        bound = math.sqrt(gain * 3 / (64 + width))
        for attention in ("self_attention", "cross_attention"):
            kernel = np.asarray(layer[attention][name])
            assert 0.99 * bound < np.abs(kernel).max() <= bound
            np.testing.assert_allclose(kernel.std(), bound / math.sqrt(3), rtol=0.03)
    bound = math.sqrt(6 / (64 + 256))
    for name in ("w_in", "w_out"):
        assert 0.98 * bound < np.abs(layer["feed_forward"][name]).max() <= bound
    for name in ("b_in", "b_out"):
        assert (layer["feed_forward"][name] == 0).all()
    assert (layer["feed_forward_residual"]["norm"]["scale"] == 1).all()
    assert (layer["feed_forward_residual"]["norm"]["bias"] == 0).all()
    sizes = {name: len(table) for name, table in params["embedding"].items()}
    assert sizes == {"source": 500, "target": 400, "softmax": 400}
    for matrix in params["embedding"].values():
        np.testing.assert_allclose(np.std(matrix), 64**-0.5, rtol=0.03)
        assert abs(np.mean(matrix)) < 0.003


def test_softmax_table_and_that_tied_tables_need_vocabularies_of_one_size():
    for tie, name in (("all", "shared"), ("target", "target"), ("none", "softmax")):
        config = tiny_config(tie=tie)
        _, params = build(config)
        assert softmax_table(params, config) is params["embedding"][name]
    model = Transformer(tiny_config(tie="all"), 10, 11)
    with pytest.raises(ValueError, match=r"10 and 11 types: .*'target' or 'none'"):
        initial_params(model, jax.random.key(0))


# A checkpoint doesn't depend on the first two; the third counts for a table of learned positions.
OTHER_FORMS = {"vocab_multiple", "scan_layers", "max_length"}


@pytest.mark.parametrize(
    "field",
    [field for field in dataclasses.fields(ModelConfig) if field.name not in OTHER_FORMS],
    ids=lambda field: field.name,
)
def test_a_setting_says_whether_it_decides_the_weights(field):
    config = tiny_config()
    value = getattr(config, field.name)
    if isinstance(value, str):
        (*_, other) = (choice for choice in get_args(field.type) if choice != value)
    elif isinstance(value, bool):
        other = not value
    else:
        other = value + 2 if isinstance(value, int) else value / 2 + 0.1
    changed = dataclasses.replace(config, **{field.name: other})
    shapes, changed_shapes = (
        jax.tree.map(lambda leaf: leaf.shape, abstract_params(Transformer(form, VOCAB, VOCAB)))
        for form in (config, changed)
    )
    assert (shapes != changed_shapes) == field.metadata["weights"]
