"""How long rows train on this machine: an estimate from a few steps that are timed here."""

from __future__ import annotations

import dataclasses
import time

import jax

from flaxformer_mt.config import ExperimentConfig, expected_types
from flaxformer_mt.config.schema import MeshConfig
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.model.flops import training_flops
from flaxformer_mt.reproduction.planned import FILLED, SENTENCE, planned_flops
from flaxformer_mt.training.program import build
from flaxformer_mt.training.try_step import try_step

# An accelerator gets a whole batch, which takes a CPU a minute a step. Base on two cores, with
# one layer a stack: 144 GFLOP/s with 512 positions, 173 to 206 with 2,048. With all six: 208 to 235
# with 2,048, and no more with 8,192. So the hours are somewhat too many.
_CPU_POSITIONS = 2048
_SECONDS = 1.0  # of steps that are timed


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRate:
    """The FLOP/s that training steps reach on this machine's devices together."""

    flops: float
    spent: float  # seconds, on measuring
    row: str = ""  # whose steps were measured

    def seconds(self, config: ExperimentConfig) -> float:
        """About how long the training steps of a config take, padding included."""
        filled = sum(FILLED[config.data.batch.form]) / 2
        return planned_flops(config) / filled / self.flops


def measured_rate(config: ExperimentConfig, row: str = "") -> TrainingRate:
    """Compiles a training step of a row's config and times it for about a second.

    The model has one layer in each stack, which compile sooner and reach nearly the FLOP/s of all.
    Raises what `training.program.build` and a step raise.
    """
    begin = time.perf_counter()
    positions = config.data.batch.tokens
    if jax.default_backend() == "cpu":
        positions = min(positions, _CPU_POSITIONS)
    multiple = config.data.batch.multiple
    length = min(SENTENCE, config.model.max_length)
    rows = max(multiple, positions // length // multiple * multiple)
    shape = Shape(rows, length, length)

    small = _single_layers(config)
    src_types, tgt_types = expected_types(config.data.vocabulary)
    program = build(
        small, src_vocab_size=src_types, tgt_vocab_size=tgt_types, devices=jax.local_devices()
    )
    trial = try_step(program, shape, longest=config.model.max_length, steps=1, seconds=_SECONDS)
    flops = training_flops(
        small.model,
        tgt_types,
        src_tokens=rows * length,
        tgt_tokens=rows * length,
        src_keys=length,
        tgt_keys=length,
    )
    return TrainingRate(
        flops=flops / trial.mean_seconds * jax.process_count(),
        spent=time.perf_counter() - begin,
        row=row,
    )


def _single_layers(config: ExperimentConfig) -> ExperimentConfig:
    """The config on this process's devices alone, with one layer per stack."""
    optimizer = dataclasses.replace(config.training.optimizer, accumulation=1)
    return dataclasses.replace(
        config,
        mesh=MeshConfig(),
        model=dataclasses.replace(config.model, encoder_layers=1, decoder_layers=1),
        training=dataclasses.replace(config.training, optimizer=optimizer),
    )
