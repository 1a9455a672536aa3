"""Low-rank adapters: small trained products beside frozen matrices (Hu et al., 2022)."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp


def merged(base: Mapping[str, Any], adapters: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """W + scale * A B for each matrix W of `base` that has an adapter; the rest as it is.

    `adapters` is a part of base's tree with `{"a": [..., inputs, rank], "b": [..., rank, outputs]}`
    in the place of a matrix, whose own axes may be more than two (arXiv 2106.09685, equation 3).
    """
    weights: dict[str, Any] = {}
    for name, node in base.items():
        adapter = adapters.get(name)
        if adapter is None:
            weights[name] = node
        elif isinstance(node, Mapping):
            weights[name] = merged(node, adapter, scale)
        else:
            # Not in the faster types of TPUs and GPUs: it is to be the matrix that others load.
            product = jnp.matmul(
                adapter["a"],
                adapter["b"],
                precision="highest",
                preferred_element_type=jnp.float32,
            )
            weights[name] = node + scale * product.reshape(node.shape)
    return weights
