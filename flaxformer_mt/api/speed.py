"""How many training steps this machine does in the minutes that a user allows."""

from __future__ import annotations

import dataclasses
import math
import time

import jax

from flaxformer_mt.config import ExperimentConfig, expected_types
from flaxformer_mt.config.schema import MeshConfig
from flaxformer_mt.config.sizes import TextSize, pieces_per_word, save_every, validate_every
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.parallel.process_settings import make_deterministic, share_one_heap
from flaxformer_mt.training.program import Program, build
from flaxformer_mt.training.try_step import try_step

_SECONDS = 3.0  # of steps that are timed
_STARTING = 10.0  # seconds: Python, JAX, reading and preparing text of some megabytes
# Validation beside training, by position: decoding token by token. Multi30k's 1,014 pairs took as
# long as 32 steps of 2,048 positions, ten of which would hold them.
_DECODING = 3.2
_SAVING = 1.2  # steps that a checkpoint delays
_SAFETY = 0.95  # of the time: it may be exceeded by as much as it is missed
_WORDS, _VALID_PAIRS = 20, 2000  # of a sentence, and of validation text, where it isn't measured
FEWEST = 100  # steps, whatever they take: fewer teach nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pacing:
    """What a step and everything else of a training take on this machine, in seconds."""

    step: float
    compiling: float  # all shapes, and validation's programs
    validation: float  # one
    spent: float  # on measuring

    def seconds_beside(self, steps: int) -> float:
        """What a training of so many steps takes beside them."""
        validations = math.ceil(steps / validate_every(steps))
        checkpoints = steps // save_every(steps)
        return (
            _STARTING
            + self.spent
            + self.compiling
            + validations * self.validation
            + checkpoints * _SAVING * self.step
        )

    def steps_in(self, minutes: float) -> int:
        """How many steps fit, at least `FEWEST`."""
        seconds = _SAFETY * 60 * minutes
        steps = max(FEWEST, int(seconds / self.step))
        while steps > FEWEST and self.seconds_beside(steps) + steps * self.step > seconds:
            # The rest depends little on the steps, so this ends after a few rounds.
            fitting = int((seconds - self.seconds_beside(steps)) / self.step)
            steps = max(FEWEST, min(fitting, steps - 1))
        return steps

    def describe(self, minutes: float) -> str:
        """A line for people on the steps in so many minutes."""
        steps = self.steps_in(minutes)
        beside = self.seconds_beside(steps)
        needed = (beside + steps * self.step) / 60
        line = (
            f"{minutes:g} minutes: {steps:,} steps of {self.step:.2f} s (measured now), and "
            f"{beside:,.0f} s for preparing, compiling, validating and saving"
        )
        if needed > minutes:
            line += f"; these fewest steps take about {needed:.0f} minutes"
        return line


def measured_pacing(config: ExperimentConfig, text: TextSize, valid: TextSize) -> Pacing:
    """Compiles the config's training step and times it for some seconds.

    `text` and `valid` are what the run will train and validate on. Of several processes one
    measures with its own devices; each is taken to do its share of a batch as fast. Raises what
    `training.program.build` and a step raise.
    """
    begin = time.perf_counter()
    if not jax.distributed.is_initialized():
        share_one_heap()  # as training does, and too late once a device has been used
    if config.training.deterministic:
        make_deterministic()  # before a device is asked for
    length = min(positions_of_pair(text, config), config.model.max_length)
    program, shape = _own_program(config, length)
    longest = config.model.max_length
    trial = try_step(program, shape, longest=longest, steps=1, seconds=_SECONDS)

    training = config.training
    valid_positions = (valid.pairs or _VALID_PAIRS) * positions_of_pair(valid, config)
    decoding = _DECODING if training.validate_bleu else 0
    programs = config.data.batch.max_shapes + (2 if training.validate_bleu else 1)
    return Pacing(
        step=trial.mean_seconds,
        compiling=programs * trial.compile_seconds,
        validation=(decoding + 1 / 3)
        * (trial.mean_seconds / config.data.batch.tokens)
        * valid_positions,
        spent=time.perf_counter() - begin,
    )


def positions_of_pair(text: TextSize, config: ExperimentConfig) -> int:
    """About how many positions a pair takes on each side, with the end mark."""
    words = text.tokens / text.pairs / 2 if text.pairs else _WORDS
    return 1 + math.ceil(words * pieces_per_word(config.data.vocabulary.size))


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
