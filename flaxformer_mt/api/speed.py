"""How many training steps this machine does in the minutes that a user allows."""

from __future__ import annotations

import dataclasses
import time

import jax

from flaxformer_mt.config import ExperimentConfig, expected_types
from flaxformer_mt.config.schema import MeshConfig
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.parallel.process_settings import make_deterministic
from flaxformer_mt.training.program import Program, build
from flaxformer_mt.training.try_step import try_step

_SECONDS = 3.0  # of steps that are timed
_STARTING = 10.0  # seconds: Python, JAX, reading and preparing text of some megabytes
# Validation beside training, by position: decoding token by token. Multi30k's 1,014 pairs took as
# long as 32 steps of 2,048 positions, ten of which would hold them.
_DECODING = 3.2
_SAVING = 0.1  # seconds of a step that a checkpoint delays
_SAFETY = 0.95  # of the time: it may be exceeded by as much as it is missed
FEWEST = 100  # steps, whatever they take: fewer teach nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pacing:
    """What a step and everything else of a training take on this machine, in seconds."""

    step: float
    compiling: float  # all shapes, and validation's programs
    validation: float  # one
    validations: int
    checkpoints: int
    spent: float  # on measuring

    @property
    def beside(self) -> float:
        """Everything but the steps."""
        validations = self.validations * self.validation
        return _STARTING + self.spent + self.compiling + validations + self.checkpoints * _SAVING

    def steps_in(self, minutes: float) -> int:
        """How many steps fit, at least `FEWEST`."""
        return max(FEWEST, int((_SAFETY * 60 * minutes - self.beside) / self.step))

    def describe(self, minutes: float) -> str:
        """A line for people on the steps in so many minutes."""
        steps = self.steps_in(minutes)
        needed = (self.beside + steps * self.step) / 60
        line = (
            f"{minutes:g} minutes: {steps:,} steps of {self.step:.2f} s (measured now), and "
            f"{self.beside:.0f} s for preparing, compiling and validating"
        )
        if needed > minutes:
            line += f"; the fewest steps, {FEWEST}, take about {needed:.0f} minutes"
        return line


def measured_pacing(config: ExperimentConfig, *, length: int, validation_positions: int) -> Pacing:
    """Compiles the config's training step and times it for some seconds.

    A pair's sides have `length` tokens on average, and validation text has `validation_positions`
    on its longer side. Of several processes one measures with its own devices; each is taken to do
    its share of a batch as fast. Raises what `training.program.build` and a step raise.
    """
    begin = time.perf_counter()
    if config.training.deterministic:
        make_deterministic()  # before a device is asked for
    program, shape = _own_program(config, length)
    longest = config.model.max_length
    trial = try_step(program, shape, longest=longest, steps=1, seconds=_SECONDS)

    training = config.training
    position = trial.mean_seconds / config.data.batch.tokens
    decoding = _DECODING if training.validate_bleu else 0
    programs = config.data.batch.max_shapes + (2 if training.validate_bleu else 1)
    return Pacing(
        step=trial.mean_seconds,
        compiling=programs * trial.compile_seconds,
        validation=(decoding + 1 / 3) * position * validation_positions,
        validations=1 + training.steps // max(1, training.validate_every or training.steps),
        checkpoints=training.steps // training.save_every,
        spent=time.perf_counter() - begin,
    )


def _own_program(config: ExperimentConfig, length: int) -> tuple[Program, Shape]:
    """This process's share of the training, and the shape of its batches of pairs of `length`."""
    tokens = config.data.batch.tokens // jax.process_count()
    mesh = config.mesh if jax.process_count() == 1 else MeshConfig()
    # A seed of its own: a compiled program from the cache would hide how long compiling takes.
    training = dataclasses.replace(config.training, seed=time.time_ns() % 2**31)
    own = dataclasses.replace(config, mesh=mesh, training=training)
    src_types, tgt_types = expected_types(config.data.vocabulary)
    program = build(
        own, src_vocab_size=src_types, tgt_vocab_size=tgt_types, devices=jax.local_devices()
    )
    multiple = config.data.batch.multiple
    rows = max(multiple, tokens // length // multiple * multiple)
    return program, Shape(rows, length, length)
