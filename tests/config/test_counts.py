"""Parameters and cost of the paper's rows, by formula and counted in the program."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from flaxformer_mt.config import load_config
from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model import Transformer, softmax_table
from flaxformer_mt.model.flops import shape_flops
from flaxformer_mt.model.parameters import count, count_by_formula, initial_params
from flaxformer_mt.parallel import without_names
from flaxformer_mt.reproduction.paper import ROWS
from tests.model.test_flops import product_flops

# English to German about 37,000 types for both languages, English to French 32,000 (section 5.1);
# parsing 16,000 or 32,000 (section 6.3) on the source's side, some tags and brackets on the other.
TYPES = {
    "table3": (37_000, 37_000),
    "wmt14_en_de": (37_000, 37_000),
    "wmt14_en_fr": (32_000, 32_000),
    "wsj_only": (16_000, 128),
    "semi_supervised": (32_000, 128),
    "craft": (6_000, 128),
}
SPECS = sorted({row.spec for row in ROWS} | {"parsing:craft"})
IN_DEFAULT = {"table3:c_N2", "table3:e_learned_positions", "parsing:wsj_only"}


def test_no_row_is_left_out():
    assert len(SPECS) == 7 + 20 and set(SPECS) >= IN_DEFAULT
    assert all(any(name in spec for name in TYPES) for spec in SPECS)


def traced(model: ModelConfig, src_types: int, tgt_types: int) -> tuple[dict[str, int], float]:
    """Parameters of each part, and FLOPs of a forward pass of 2 rows of 3 + 3 tokens."""
    transformer = Transformer(model, src_types, tgt_types)
    ids = jnp.ones((2, 3), jnp.int32)

    def forward(params: Any) -> Any:
        hidden: Any = transformer.apply(
            {"params": params},
            *(ids, ids),
            src_segment_ids=ids,
            tgt_segment_ids=ids,
            src_positions=ids,
            tgt_positions=ids,
            deterministic=True,
        )
        return jnp.einsum("rld,vd->rlv", hidden, softmax_table(params, model))

    params = without_names(jax.eval_shape(lambda: initial_params(transformer, jax.random.key(0))))
    return count(params), product_flops(jax.make_jaxpr(forward)(params).jaxpr)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, marks=() if spec in IN_DEFAULT else pytest.mark.extended)
        for spec in SPECS
    ],
)
def test_parameters_and_flops_by_formula_are_those_of_the_program(spec):
    (types,) = (sizes for name, sizes in TYPES.items() if name in spec)
    # Neither depends on what is dropped out.
    model = dataclasses.replace(load_config(spec).model, dropout=0.0)
    counted, flops = traced(model, *types)
    formula = count_by_formula(model, *types)
    assert counted == {part: number for part, number in formula.items() if number}
    # Backward costs twice the forward pass. The softmax is of the target's types alone.
    assert shape_flops(model, types[1], rows=2, src_length=3, tgt_length=3) == 3 * flops
