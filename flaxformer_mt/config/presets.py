"""The paper's model sizes, as changes to the defaults (which are its base model)."""

from __future__ import annotations

from ml_collections import ConfigDict


def paper_big(config: ConfigDict, *, dropout: float) -> None:
    """The big model and its training (Table 3, section 6.1), in place.

    `dropout` was 0.3, but 0.1 from English to French.
    """
    config.model.d_model = 1024
    config.model.d_ff = 4096
    config.model.num_heads = 16
    config.model.dropout = dropout
    config.training.steps = 300_000
    # A checkpoint every ten minutes of the paper's machine, the last 20 averaged.
    config.training.save_every = 600
    config.training.keep_for_average = 20
