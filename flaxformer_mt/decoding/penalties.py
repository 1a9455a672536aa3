"""What a finished hypothesis's log-probability is divided by, and what is added to it."""

from typing import Any

import jax.numpy as jnp


def length_penalty(length: Any, alpha: Any, *, average: Any = False) -> Any:
    """((5 + |Y|) / 6)^alpha (Wu et al., 2016, equation 14), or |Y|^alpha if `average`.

    |Y| counts the end mark, as in tensor2tensor, whose settings the paper uses.
    """
    return ((length + 5.0 * (1.0 - average)) / (6.0 - 5.0 * average)) ** alpha


def coverage_penalty(coverage: Any) -> Any:
    """sum_i log min(sum_j p_ij, 1) over source tokens i (Wu et al., 2016, equation 14); axis -1.

    p_ij is output token j's attention to source token i. At least 1e-6 is counted, so that even a
    hypothesis of only the end mark isn't ruled out.
    """
    return jnp.log(jnp.clip(coverage, 1e-6, 1.0)).sum(axis=-1)
