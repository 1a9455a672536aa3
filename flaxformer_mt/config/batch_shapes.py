"""How many batch shapes a run compiles: `decided_shapes` decides it, from facts that others have.

`sizes.py` has the amount of text, `load.py` the settings of a run that exists, `api/settings.py`
those of a run that another one starts from. `data/bucket.py` then chooses the shapes.
"""

from __future__ import annotations

import dataclasses
import math

from flaxformer_mt.config.schema import ExperimentConfig, ModelConfig

# One shape for everything is as long as the longest pair: two thirds to five sixths of it would be
# padding, in the texts below. Two leave 38 to 48%.
FEWEST_SHAPES, MOST_SHAPES = 2, 16
# N shapes leave about this / N as much padding as there are tokens: 1.0 to 1.3 for the built-in
# grammar, Multi30k and Tatoeba, from two to sixteen shapes.
_PADDING = 1.1
_FULL = 0.8  # of a batch's positions are tokens, about
# What a CPU computes in the time in which it compiles a step: 7 to 10 seconds of one core, from two
# layers a side to base, at 90 to 230 GFLOP/s. An accelerator computes far more, but compiles all
# shapes at once, and its trainings are long: they get the most shapes anyway.
_COMPILING = 8e11  # FLOPs


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingWork:
    """What a training computes, as far as it tells how many shapes are worth compiling."""

    model: ModelConfig
    types: int  # of the vocabulary
    batch_tokens: int  # positions of a batch, on each side
    steps: int

    @classmethod
    def of(cls, config: ExperimentConfig) -> TrainingWork:
        """The work of a run with these settings."""
        return cls(
            model=config.model,
            types=config.data.vocabulary.size,
            batch_tokens=config.data.batch.tokens,
            steps=config.training.steps,
        )


def decided_shapes(
    work: TrainingWork, *, given: int = 0, recorded: int = 0, most: int = MOST_SHAPES
) -> int:
    """The number of batch shapes, by the first of these rules that applies.

    1. A number that the user or a config file has `given` (0: none) stands.
    2. A run that exists keeps the number that it has `recorded` (0: none).
    3. As many as the training repays, and at most `most`: the text's number with the config
       `files`, the other run's number in a run that starts from it.
    """
    return given or recorded or min(most, repaid_shapes(work))


def with_decided_shapes(
    config: ExperimentConfig,
    *,
    recorded: ExperimentConfig | None = None,
    source: ExperimentConfig | None = None,
) -> ExperimentConfig:
    """The config with its number of batch shapes decided.

    `recorded` has the settings of the run itself, if it exists; `source` those of the run that it
    starts from, unless the user gives the number.
    """
    batch = config.data.batch
    shapes = decided_shapes(
        TrainingWork.of(config),
        given=batch.max_shapes if source is None else 0,
        recorded=0 if recorded is None else recorded.data.batch.max_shapes,
        most=MOST_SHAPES if source is None else source.data.batch.max_shapes,
    )
    batch = dataclasses.replace(batch, max_shapes=shapes)
    return dataclasses.replace(config, data=dataclasses.replace(config.data, batch=batch))


def repaid_shapes(work: TrainingWork) -> int:
    """The number of batch shapes that costs a training least, compiling and padding together.

    Each shape is compiled once. More of them fit the lengths of pairs better and save padding in
    every step. With N shapes, `tokens * _PADDING / N` positions are padding, and compiling takes as
    long as `N * _COMPILING / flops` positions; the sum is least where both are equal.
    """
    tokens = 2 * work.batch_tokens * _FULL * work.steps
    shapes = math.sqrt(_PADDING * tokens * _flops(work.model, work.types) / _COMPILING)
    return max(FEWEST_SHAPES, min(MOST_SHAPES, round(shapes)))


def step_flops(work: TrainingWork) -> float:
    """FLOPs of one training step on a full batch."""
    return 2 * work.batch_tokens * _flops(work.model, work.types)


def _flops(model: ModelConfig, types: int) -> float:
    """Of training on one position of either side, the mean of both: six for each parameter that it
    meets (two forward, four backward)."""
    attention = 2 * model.d_model * model.num_heads * (model.d_k + model.d_v)
    feed_forward = 2 * model.d_model * model.d_ff
    source = model.encoder_layers * (attention + feed_forward)
    target = model.decoder_layers * (2 * attention + feed_forward) + model.d_model * types
    return 6 * (source + target) / 2
