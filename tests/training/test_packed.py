"""Packed rows train as their pairs do one by one: nothing of a pair reaches its neighbours."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from flaxformer_mt.data.batch import Batch, assemble
from flaxformer_mt.data.pack import plan_packed
from flaxformer_mt.data.plan import Shape, stream
from flaxformer_mt.training.step import batch_loss
from tests.training.examples import MAX_LENGTH, SPECIAL, VOCAB, program, random_pairs, tiny

PAIRS = random_pairs(24)
PLAN = plan_packed(PAIRS.src_lengths, PAIRS.tgt_lengths, Shape(4, 24, 24), stream(0, 0, 0))


def packed() -> Batch:
    shape, rows = PLAN[0]
    assert rows.counts.max() > 2
    return assemble(PAIRS, rows.pairs, shape, rows.counts)


def test_the_loss_is_the_sum_of_the_pairs_losses() -> None:
    config, model, params = tiny(), program().model, program().init().params
    together = np.zeros(3)
    for index in range(len(PLAN)):
        shape, rows = PLAN[index]
        sums = batch_loss(
            model, config, params, assemble(PAIRS, rows.pairs, shape, rows.counts), None
        )
        together += [float(sums.objective), float(sums.nll), float(sums.tokens)]
    single = assemble(PAIRS, np.arange(len(PAIRS)), Shape(24, MAX_LENGTH, MAX_LENGTH))
    sums = batch_loss(model, config, params, single, None)
    expected = [float(sums.objective), float(sums.nll), float(sums.tokens)]
    assert together == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("side", ["src", "tgt_in"])
def test_a_changed_pair_moves_its_own_outputs_alone(side: str) -> None:
    model, params, batch = program().model, program().init().params, packed()
    segments = batch.src_segment_ids if side == "src" else batch.tgt_segment_ids
    tokens = getattr(batch, side).copy()
    changed = segments == 2
    tokens[changed] = SPECIAL + (tokens[changed] - SPECIAL + 1) % (VOCAB - SPECIAL)
    outputs = []
    for given in (batch, dataclasses.replace(batch, **{side: tokens})):
        hidden = jax.jit(model.apply, static_argnames="deterministic")(
            {"params": params},
            given.src,
            given.tgt_in,
            src_segment_ids=given.src_segment_ids,
            tgt_segment_ids=given.tgt_segment_ids,
            src_positions=given.src_positions,
            tgt_positions=given.tgt_positions,
            deterministic=True,
        )
        outputs.append(np.asarray(hidden))
    moved = (outputs[0] != outputs[1]).any(axis=-1)
    assert moved[batch.tgt_segment_ids == 2].any()
    others = (batch.tgt_segment_ids != 2) & (batch.tgt_segment_ids > 0)
    assert not moved[others].any()
