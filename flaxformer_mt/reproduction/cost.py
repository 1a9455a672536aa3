"""What an experiment costs: by formula before it is run, of its own tokens afterwards."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flaxformer_mt.config import ExperimentConfig, expected_types, flatten, load_config
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.model.parameters import count_by_formula
from flaxformer_mt.reproduction.result_file import Result
from flaxformer_mt.rundir.reports import progress

SENTENCE = 25
"""Tokens of a sentence where nothing is known of the text: about newstest's in word-pieces."""
_PLANNED = re.compile(r"(base|big)_(v\w+?)_(\d+)_paper_step_ms")
# What decides a step's program, beside the sizes of the vocabularies.
_OF_A_STEP = (
    *("model.", "data.batch.", "mesh.", "training.optimizer.", "training.loss_chunk"),
    "training.label_smoothing",
)


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
    """A step of the paper's batch on chips that were not there, by the TPU's own compiler."""

    chip: str
    chips: int
    step_ms: float
    gib: float  # of a chip's memory

    def chip_hours(self, steps: int) -> float:
        return self.step_ms * steps * self.chips / 3.6e6


def planned_steps(config: ExperimentConfig, plan: Result | None) -> Iterator[Planned]:
    """What the benchmark `plan` knows of this config's step; nothing if it has another."""
    for name, value in plan.metrics.items() if plan is not None else ():
        if (found := _PLANNED.fullmatch(name)) is None:
            continue
        if _step(load_config(f"wmt14_en_de:{found[1]}")) == _step(config):
            yield Planned(
                chip=found[2],
                chips=int(found[3]),
                step_ms=value,
                gib=plan.metrics[name.replace("_step_ms", "_gib")] if plan is not None else 0.0,
            )


def _step(config: ExperimentConfig) -> tuple[Any, ...]:
    of_a_step = {k: v for k, v in flatten(config).items() if k.startswith(_OF_A_STEP)}
    return of_a_step, expected_types(config.data.vocabulary)
