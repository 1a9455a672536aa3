"""The rule by which `--scale` shrinks an experiment: a share S of the paper's run is done.

All that is counted in steps shrinks alike, so that the learning rate is the same at the same share
of training, and averaging covers the same last part of it. A step costs what it costs at full
scale, and its learning rate remains that of its batch.
"""

from __future__ import annotations

import dataclasses
import math

from flaxformer_mt.config import ExperimentConfig, ScheduleConfig

RULE = """\
S times the steps, the warm-up (with the same highest learning rate) and the steps between
checkpoints, of which as many are averaged; the first S x 4.5 million (EN-FR: 36 million; parsing:
40,000, and 17 million of others' trees) training pairs, so that each is seen as often as in the
paper. Validation, by which nothing is chosen, takes place about ten times and does not translate.
Batch, model, vocabulary and search stay as they are."""
_VALIDATIONS = 10


def scaled(config: ExperimentConfig, scale: float) -> ExperimentConfig:
    """The share `scale`, in (0, 1], of an experiment; at 1 the experiment itself."""
    if scale == 1:
        return config
    training = config.training
    steps = share_of(training.steps, scale)
    save_every = share_of(training.save_every, scale)
    training = dataclasses.replace(
        training,
        steps=steps,
        schedule=scaled_schedule(training.schedule, scale),
        save_every=save_every,
        # Where intervals cannot shrink further there may be fewer checkpoints than that.
        keep_for_average=min(training.keep_for_average, max(1, steps // save_every)),
        log_every=share_of(training.log_every, scale),
        validate_every=max(1, round(steps / _VALIDATIONS)),
        validate_bleu=False,
        best_metric="loss",
    )
    return dataclasses.replace(config, training=training)


def validating_at_checkpoints(config: ExperimentConfig) -> ExperimentConfig:
    """Validation as often as before, but at steps that have a checkpoint anyway.

    It saves one as well, and the last 5 of more frequent ones would cover less of training than the
    paper's last 5, which are ten minutes apart.
    """
    training = config.training
    intervals = max(1, round(training.validate_every / training.save_every))
    every = training.save_every * intervals if training.validate_every else 0
    return dataclasses.replace(config, training=dataclasses.replace(training, validate_every=every))


def scaled_schedule(schedule: ScheduleConfig, scale: float) -> ScheduleConfig:
    """The same curve over the share of training that is done.

    The paper's formula has its highest value factor * d_model^-0.5 * warmup^-0.5 at the end of the
    warm-up: with S of the steps and of the warm-up, and the root of S times the factor, step S * t
    has the learning rate of step t.
    """
    warmup = share_of(schedule.warmup_steps, scale)
    root = math.sqrt(warmup / schedule.warmup_steps) if schedule.kind == "paper" else 1.0
    return dataclasses.replace(schedule, warmup_steps=warmup, factor=schedule.factor * root)


def share_of(count: int, scale: float) -> int:
    """Of steps or training pairs: at least 1."""
    return max(1, round(count * scale))
