"""Which position may attend to which: one boolean mask from segment ids and causality."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

MASKED = -1e9  # added to the scores of masked positions: exp() of it is exactly 0 in float32


def attention_mask(
    query_segment_ids: Int[Array, "rows queries"],
    key_segment_ids: Int[Array, "rows keys"],
    *,
    causal: bool = False,
) -> Bool[Array, "rows queries keys"]:
    """True where a query may attend to a key: same segment, not padding (segment 0), not later.

    `causal` compares indices in the row, which inside a segment order its tokens (paper,
    section 3.2.3). The row of a padding query is False throughout.
    """
    same_segment = query_segment_ids[:, :, None] == key_segment_ids[:, None, :]
    mask = same_segment & (key_segment_ids[:, None, :] != 0)
    if causal:
        queries = jnp.arange(query_segment_ids.shape[1])
        keys = jnp.arange(key_segment_ids.shape[1])
        mask &= (queries[:, None] >= keys[None, :])[None]
    return mask


def mask_bias(mask: Bool[Array, "..."]) -> Float[Array, "..."]:
    """The mask as a float32 term of the scores: 0 where allowed, -1e9 elsewhere.

    It is finite, so a row with nothing to attend to gets some finite average and no NaN; what
    stands there is padding, which no real position reads.
    """
    return jnp.where(mask, jnp.float32(0), jnp.float32(MASKED))
