"""A model's parameters and operations, counted in the program and not by formula."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from flaxformer_mt.config.schema import ModelConfig
from flaxformer_mt.model import Transformer, softmax_table
from flaxformer_mt.model.parameters import count, initial_params
from flaxformer_mt.parallel import without_names
from tests.model.test_flops import product_flops


@functools.cache
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
