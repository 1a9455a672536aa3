"""The formula against the products that the model's own program has, counted one by one."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model.embedding import softmax_table
from flaxformer_mt.model.flops import forward_flops, training_flops
from flaxformer_mt.model.parameters import initial_params
from flaxformer_mt.model.transformer import Transformer
from flaxformer_mt.parallel.mesh import without_names
from tests.model.examples import Rows, apply, tiny_config

ROWS, SRC, TGT, VOCAB = 3, 5, 7, 11
# All sizes differ, so that none can stand in for another.
SIZES = {"encoder_layers": 2, "decoder_layers": 3, "d_model": 8, "d_ff": 13}
CONFIG = tiny_config(**SIZES, num_heads=2, d_k=3, d_v=4)


def product_flops(jaxpr: Any) -> float:
    """Twice the multiplications of every matrix product in a jaxpr, calls included."""
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            contracted = equation.params["dimension_numbers"][0][0]
            left = equation.invars[0].aval.shape
            total += (
                2
                * math.prod(equation.outvars[0].aval.shape)
                * math.prod(left[axis] for axis in contracted)
            )
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += product_flops(inner)
    return total


def counted(config: ModelConfig) -> float:
    model = Transformer(config, VOCAB, VOCAB)
    src, tgt = jnp.ones((ROWS, SRC), jnp.int32), jnp.ones((ROWS, TGT), jnp.int32)

    def forward(params: Any) -> Any:
        hidden = apply(model, params, Rows(src, tgt, src, tgt, src, tgt))
        return jnp.einsum("rld,vd->rlv", hidden, softmax_table(params, config))

    params = without_names(jax.eval_shape(lambda: initial_params(model, jax.random.key(0))))
    return product_flops(jax.make_jaxpr(forward)(params).jaxpr)


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre", "encoder_layers": 5, "d_k": 9, "attention_bias": True}]
)
def test_formula_counts_every_product(changes):
    config = dataclasses.replace(CONFIG, **changes)
    parts = forward_flops(
        config, VOCAB, src_tokens=ROWS * SRC, tgt_tokens=ROWS * TGT, src_keys=SRC, tgt_keys=TGT
    )
    assert sum(parts.values()) == counted(config)


def test_training_is_three_forward_passes():
    sizes = {"src_tokens": 30.0, "tgt_tokens": 40.0, "src_keys": 6.0, "tgt_keys": 8.0}
    forward = forward_flops(CONFIG, VOCAB, **sizes)
    assert training_flops(CONFIG, VOCAB, **sizes) == 3 * sum(forward.values())
