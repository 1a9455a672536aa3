"""How many training steps this machine does in the minutes that a user allows."""

from __future__ import annotations

import bisect
import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import jax

from flaxformer_mt.config import ExperimentConfig, expected_types
from flaxformer_mt.config.batch_shapes import step_flops
from flaxformer_mt.config.schema import MeshConfig
from flaxformer_mt.config.sizes import (
    ENOUGH,
    LITTLE,
    TextSize,
    max_shapes,
    pieces_per_word,
    sized,
    training_steps,
    work,
)
from flaxformer_mt.data.plan import Shape
from flaxformer_mt.parallel.process_settings import make_deterministic, share_one_heap
from flaxformer_mt.training.program import Program, build
from flaxformer_mt.training.try_step import try_step

_SECONDS = 3.0  # of steps that are timed
_STARTING = 10.0  # seconds: Python, JAX, the model
# Seconds for a million tokens: to measure and read them, learn a vocabulary, and encode them.
# 200,000 pairs of Europarl, some 10 million tokens, are encoded in 12.4 s (docs/data.md).
_PREPARING = 2.0
# Validation beside training, by position: decoding token by token. Multi30k's 1,014 pairs took as
# long as 32 steps of 2,048 positions, ten of which would hold them.
_DECODING = 3.2
_SAVING = 1.2  # steps that a checkpoint delays
_VALIDATION_PROGRAMS = 1  # loss and decoding together compile as long as a step: no backward pass
_SAFETY = 0.95  # of the time: it may be exceeded by as much as it is missed
_WORDS, _VALID_PAIRS = 20, 2000  # of a sentence, and of validation text, where it isn't measured
FEWEST = 100  # steps, whatever they take: fewer teach nothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pacing:
    """What a step and everything else of a training take on this machine, in seconds."""

    step: float
    compiling: float  # one program: a shape's step, or one of validation's
    validation: float  # one
    spent: float  # on measuring
    text: TextSize  # which is trained on
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The sizes that the user sets, by key: they don't follow the steps."""

    def seconds_beside(self, steps: int) -> float:
        """What a training of so many steps takes beside them."""
        settings = {**sized(self.text, steps=steps, given=self.given), **self.given}
        validate_every = settings["training.validate_every"]  # 0: only at the end
        save_every = settings["training.save_every"]
        # 0 leaves the number to the training's length, which decides about as for the text.
        shapes = settings["data.batch.max_shapes"] or max_shapes(self.text, steps)

        validations = math.ceil(steps / validate_every) if validate_every else 1
        checkpoints = steps // save_every
        if validate_every:  # each validation saves one, unless one is due anyway
            both = math.lcm(save_every, validate_every)
            checkpoints += steps // validate_every - steps // both
        programs = shapes + _VALIDATION_PROGRAMS
        return (
            _STARTING
            + self.text.tokens / 1e6 * _PREPARING
            + self.spent
            + programs * self.compiling
            + validations * self.validation
            + checkpoints * _SAVING * self.step
        )

    def seconds_of(self, steps: int) -> float:
        """What a training of so many steps takes in all."""
        return self.seconds_beside(steps) + steps * self.step

    def steps_in(self, minutes: float) -> int:
        """How many steps fit, at least `FEWEST`."""
        seconds = _SAFETY * 60 * minutes
        candidates = range(FEWEST, max(FEWEST, int(seconds / self.step)) + 1)
        fitting = bisect.bisect_right(candidates, seconds, key=self.seconds_of)
        return candidates[max(0, fitting - 1)]

    def affordable_tokens(self, minutes: float) -> int:
        """Tokens of the largest text whose sizes get `ENOUGH` of its steps in the minutes.

        A step is taken to last in proportion to its FLOPs.
        """

        def lacking(tokens: int) -> float:
            text = dataclasses.replace(self.text, affordable=tokens)
            ratio = step_flops(work(text, 1)) / step_flops(work(self.text, 1))
            pacing = dataclasses.replace(self, text=text, step=ratio * self.step)
            return ENOUGH - pacing.steps_in(minutes) / training_steps(text)

        candidates = range(min(LITTLE, self.text.tokens), self.text.tokens + 1)
        return candidates[max(0, bisect.bisect_right(candidates, 0.0, key=lacking) - 1)]

    def describe(self, minutes: float) -> str:
        """A line for people on the steps in so many minutes."""
        steps = self.steps_in(minutes)
        beside, needed = self.seconds_beside(steps), self.seconds_of(steps) / 60
        line = (
            f"training.minutes={minutes:g}: {steps:,} steps of {self.step:.2f} s (measured now), "
            f"and {beside:,.0f} s for preparing, compiling, validating and saving"
        )
        if needed > minutes:
            line += (
                f"; training ends before, and fewer teach little: give it {math.ceil(needed)} "
                "minutes or more"
            )
        return line


def measured_pacing(
    config: ExperimentConfig, text: TextSize, valid: TextSize, given: Mapping[str, Any]
) -> Pacing:
    """Compiles the config's training step and times it for some seconds.

    `text` and `valid` are what the run will train and validate on, and `given` the sizes that the
    user sets, by key. Of several processes one measures with its own devices; each is taken to do
    its share of a batch as fast. Raises what `training.program.build` and a step raise.
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

    seconds_per_position = trial.mean_seconds / config.data.batch.tokens
    valid_positions = (valid.pairs or _VALID_PAIRS) * positions_of_pair(valid, config)
    decoding = _DECODING if config.training.validate_bleu else 0
    return Pacing(
        step=trial.mean_seconds,
        compiling=trial.compile_seconds,
        # Its loss takes a third of a step's work: there is no backward pass.
        validation=(decoding + 1 / 3) * valid_positions * seconds_per_position,
        spent=time.perf_counter() - begin,
        text=text,
        given=given,
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
