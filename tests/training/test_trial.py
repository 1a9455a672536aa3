"""A step on the longest batch, as `train --dry-run` tries it."""

import dataclasses
from unittest import mock

import jax
import numpy as np
import pytest

from flaxformer_mt.data.plan import Shape, longest
from flaxformer_mt.training.try_step import TrialError, full_batch, try_step
from tests.training.examples import MAX_LENGTH, VOCAB, program

SHAPE = Shape(8, MAX_LENGTH, MAX_LENGTH)


def test_the_longest_shape_is_tried_full_and_without_padding():
    assert longest([Shape(64, 9, 9), Shape(8, 60, 60), Shape(28, 18, 18)]) == Shape(8, 60, 60)
    # Of shapes as long as each other the one of most rows.
    assert longest([Shape(64, 2, 2), Shape(8, 16, 15), Shape(16, 15, 16)]) == Shape(16, 15, 16)
    batch = full_batch(Shape(4, 10, 10), program(), longest=4)
    for segments, positions in (
        (batch.src_segment_ids, batch.src_positions),
        (batch.tgt_segment_ids, batch.tgt_positions),
    ):
        np.testing.assert_array_equal(segments[0], [1, 1, 1, 1, 2, 2, 2, 2, 3, 3])
        np.testing.assert_array_equal(positions[2], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1])
    assert batch.src.min() >= 4 and batch.src.max() < VOCAB


def test_a_step_is_timed_its_memory_known_and_remedies_said():
    trial = try_step(program(), SHAPE, longest=MAX_LENGTH, steps=2)
    assert trial.compile_seconds > 0 and trial.step_seconds > 0 and np.isfinite(trial.loss)
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(program().abstract))
    assert state <= trial.arguments < state + 10_000
    assert trial.temporary > 0
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 32.00G exceeds 15.75G\nand more")
    exhausted = mock.Mock(side_effect=error)
    too_small = dataclasses.replace(program(), lower_train_step=exhausted)
    with pytest.raises(TrialError, match=r"8 rows of 8 \+ 8 .* 15.75G; lower data.batch.tokens"):
        try_step(too_small, SHAPE, longest=MAX_LENGTH)
