"""The formula against the matrix products of the traced training step itself."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import pytest

from flaxformer_mt.config import freeze
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.planning.flops import forward_flops, step_flops
from flaxformer_mt.training.program import abstract_batch, build
from flaxformer_mt.training.step import batch_loss

VOCAB = 120
MODEL = {
    "encoder_layers": 2,
    "decoder_layers": 3,
    "d_model": 24,
    "d_ff": 40,
    "num_heads": 4,
    "d_k": 5,
    "d_v": 7,
    "max_length": 32,
    "dropout": 0.0,
}


def products(jaxpr: Any) -> int:
    """Multiplications and additions of every `dot_general`, loops multiplied out."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            terms = math.prod(left[axis] for axis in contracted)
            total += 2 * terms * math.prod(equation.outvars[0].aval.shape)
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                total += times * products(inner)
    return total


@pytest.mark.parametrize("scan_layers", [False, True])
@pytest.mark.parametrize("chunk", [0, 32])
def test_equals_the_traced_products(scan_layers, chunk):
    settings = {
        "model": MODEL | {"scan_layers": scan_layers},
        "data": {"filter": {"max_length": 32}},
        "training": {"loss_chunk": chunk, "best_metric": "loss", "validate_bleu": False},
    }
    config = freeze(settings, "a test")
    shape = Shape(8, 16, 12)
    program = build(config, src_vocab_size=VOCAB, tgt_vocab_size=VOCAB)
    batch = abstract_batch(shape, program.mesh)

    def loss(params: Any, batch: Any) -> Any:
        return batch_loss(program.model, config, params, batch, None).objective

    traced = jax.make_jaxpr(jax.value_and_grad(loss))(program.abstract.params, batch)
    # The label's logit and the sum of logits are vector products of the loss, not the model's.
    of_loss = 2 * 2 * shape.rows * shape.tgt_length * config.model.d_model
    assert products(traced.jaxpr) == step_flops(config.model, shape, VOCAB) + of_loss


def test_twice_the_rows_are_twice_the_work():
    model = freeze({}, "a test").model
    one, two = (step_flops(model, Shape(rows, 64, 64), 37_000) for rows in (8, 16))
    assert two == 2 * one


def test_the_papers_base_model():
    """6 FLOPs a parameter and token, and attention: 25,000 + 25,000 tokens at a length of 32."""
    model = freeze({}, "a test").model
    shape = Shape(784, 32, 32)
    by_parameters = 6 * 25_088 * (63.0e6 + 6 * 2 * 512 * 512 * 0)
    assert step_flops(model, shape, 37_000) == pytest.approx(by_parameters, rel=0.1)
    parts = forward_flops(model, shape, 37_000)
    assert parts["softmax"] == 2 * 784 * 32 * 512 * 37_000
    assert parts["encoder scores"] * 100 < sum(parts.values())


def test_wider_heads_cost_more():
    model = freeze({}, "a test").model
    wide = dataclasses.replace(model, d_k=2 * model.d_k)
    shape = Shape(8, 64, 64)
    assert step_flops(wide, shape, 100) > step_flops(model, shape, 100)
