"""What an experiment costs: by formula before it is run, of its own tokens afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flaxformer_mt.config import ExperimentConfig, expected_types
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.model.parameters import count_by_formula
from flaxformer_mt.rundir.reports import progress

SENTENCE = 25
"""Tokens of a sentence where nothing is known of the text: about newstest's in word-pieces."""


def planned_flops(config: ExperimentConfig) -> float:
    """FLOPs of training by the model's formula, as if every batch were full on both sides.

    An upper bound: padding is counted, and attention as in sentences of `SENTENCE` tokens.
    """
    tokens = config.data.batch.tokens
    step = training_flops(
        config.model,
        expected_types(config.data.vocabulary)[1],
        src_tokens=tokens,
        tgt_tokens=tokens,
        src_keys=SENTENCE,
        tgt_keys=SENTENCE,
    )
    return step * config.training.steps


def planned_parameters(config: ExperimentConfig) -> int:
    """Parameters with vocabularies of the sizes that the config asks for."""
    return sum(count_by_formula(config.model, *expected_types(config.data.vocabulary)).values())


def trained_tokens(reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Source and target tokens of all steps, from the reports of `metrics.jsonl`."""
    done = progress(reports)
    return {"src": float(done.src_tokens[-1]), "tgt": float(done.tgt_tokens[-1])}


def measured_flops(
    config: ExperimentConfig,
    tgt_vocab_size: int,
    *,
    tokens: Mapping[str, float],
    lengths: Mapping[str, float],
) -> float:
    """FLOPs of the tokens that were trained on, padding left out.

    `tokens` are all of a side's, `lengths` the mean length of its sentences.
    """
    return training_flops(
        config.model,
        tgt_vocab_size,
        src_tokens=tokens["src"],
        tgt_tokens=tokens["tgt"],
        src_keys=lengths["src"],
        tgt_keys=lengths["tgt"],
    )
