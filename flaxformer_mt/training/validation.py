"""The loss of the validation set."""

from __future__ import annotations

from typing import Any

import jax

from flaxformer_mt.config import ExperimentConfig
from flaxformer_mt.data.pipeline import one_pass
from flaxformer_mt.data.store import TokenPairs
from flaxformer_mt.training.program import Program
from flaxformer_mt.training.telemetry import perplexity


def validation_loss(
    program: Program, pairs: TokenPairs, config: ExperimentConfig, params: Any
) -> dict[str, float]:
    """`loss` (plain negative log-likelihood, nats a target token) and `perplexity` of all pairs."""
    batches = one_pass(pairs, config.data.batch, share=program.share)
    sums = [program.eval_step(params, batch) for batch in batches]
    totals = jax.device_get(sums)
    tokens = sum(float(item.tokens) for item in totals)
    nll = sum(float(item.nll) for item in totals) / tokens
    return {"loss": nll, "perplexity": perplexity(nll)}
