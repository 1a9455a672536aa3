"""Packed rows train as their pairs do one by one."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from flaxformer_mt.data.batch import assemble
from flaxformer_mt.data.pack import plan_packed
from flaxformer_mt.data.plan import Shape, stream
from flaxformer_mt.training.step import batch_loss
from tests.training.examples import MAX_LENGTH, program, random_pairs, tiny

PAIRS = random_pairs(24)
PLAN = plan_packed(PAIRS.src_lengths, PAIRS.tgt_lengths, Shape(4, 24, 24), stream(0, 0, 0))


def test_the_loss_is_the_sum_of_the_pairs_losses() -> None:
    params = program().init().params
    loss = jax.jit(functools.partial(batch_loss, program().model, tiny(), dropout_key=None))
    together, packed = np.zeros(3), 0
    for index in range(len(PLAN)):
        shape, rows = PLAN[index]
        packed = max(packed, rows.counts.max())
        sums = loss(params, assemble(PAIRS, rows.pairs, shape, rows.counts))
        together += [float(sums.objective), float(sums.nll), float(sums.tokens)]
    assert packed > 2
    single = assemble(PAIRS, np.arange(len(PAIRS)), Shape(24, MAX_LENGTH, MAX_LENGTH))
    sums = loss(params, single)
    expected = [float(sums.objective), float(sums.nll), float(sums.tokens)]
    assert together == pytest.approx(expected, rel=1e-5)
