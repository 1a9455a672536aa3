"""The two-level top-k against sorting everything."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from flaxformer_mt.decoding.candidates import CHUNK, top_candidates


@pytest.mark.parametrize("vocab", [4, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 5 * CHUNK + 40])
@pytest.mark.parametrize("levels", [0, 5])
def test_equals_sorting_everything(vocab, levels):
    rows, beams, count = 6, 3, 6
    rng = np.random.default_rng(vocab + levels)
    logits = rng.normal(size=(rows, beams, vocab)).astype(np.float32)
    log_probs = -rng.exponential(size=(rows, beams)).astype(np.float32)
    if levels:
        # Few different values: many ties, within chunks and between them.
        logits = rng.integers(0, levels, size=logits.shape).astype(np.float32)
        logits[:, 1:] = logits[:, :1]
        log_probs = np.full_like(log_probs, -1.0)
    log_probs[0, 1:] = -np.inf
    allowed = rng.random((rows, vocab)) < 0.7
    allowed[:, :2] = True
    allowed[1] = False
    allowed[1, 2] = True

    function = jax.jit(top_candidates, static_argnames="count")
    values, beam, token = map(
        np.asarray, function(logits, log_probs, allowed[:, None], count=count)
    )

    # In float32 as well: float64 would break ties that float32 has.
    log_norm = np.asarray(jax.nn.logsumexp(logits, axis=-1, keepdims=True))
    every = log_probs[:, :, None] + (np.where(allowed[:, None], logits, -np.inf) - log_norm)
    every = every.reshape(rows, -1)
    order = np.argsort(-every, axis=1, kind="stable")[:, :count]
    expected = np.take_along_axis(every, order, axis=1)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert values.shape == (rows, count)
    assert (token < vocab).all() and (beam < beams).all()
    exists = expected > -np.inf
    assert exists[2:].all() and exists[1].sum() == beams
    np.testing.assert_array_equal((beam * vocab + token)[exists], order[exists])
